package segment

// Batch is a contiguous run of the log from its source, from which segments are made.
type Batch struct {
	First, Last uint64 // the covered positions, both inclusive; 0: none
	End         End    // describes the entry at Last
	// Requests are requests or changes. In a log from WAL they are the entries that change the database: raft's own
	// entries and those about the membership are omitted.
	Requests []Record
	// GuessedLeases is the number of lease grants whose TTL was no longer known. Only in a log from Watch.
	GuessedLeases int
}
