package storagetest

// Verb is one of the five methods of a Bucket.
type Verb string

// The verbs.
const (
	VerbPut    Verb = "put"
	VerbOpen   Verb = "open"
	VerbStat   Verb = "stat"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
)
