package records

// Copies determines whether a load may use copies of documents, and values derived from them, which only save requests: the index of
// the backups, and the summary of the log.
type Copies int

// The Copies.
const (
	NoCopies     Copies = iota // each document is read
	SignedCopies               // copies that a trusted key has signed; none if the policy trusts no key
	// AnyCopies also allows copies without signatures if the policy trusts no key. Anyone who can write to the repository can forge those,
	// even if locks protect the documents. So a caller may show them, and must decide nothing by them.
	AnyCopies
)

// MayUse reports whether c allows copies under the policy of s.
func (s *Store) MayUse(c Copies) bool {
	return c == AnyCopies || c == SignedCopies && !s.Policy.Trust.None()
}
