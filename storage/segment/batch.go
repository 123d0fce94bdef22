package segment

// Batch is a run of the log as its source yields it, for segments to be made of.
type Batch struct {
	First, Last uint64 // the positions that it covers, both inclusive; 0: none
	End         End    // of what is at Last
	// Requests, or changes. Of a log from WAL they are those entries that change the database: the others are raft's own
	// and those about the membership.
	Requests []Record
	// GuessedLeases is as in a Header.
	GuessedLeases int
}
