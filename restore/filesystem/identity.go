package filesystem

// Identity identifies a directory within its file system. It stays the same when the directory is renamed, and when the file system is
// mounted at another path or on another machine. The zero Identity belongs to no directory.
type Identity struct {
	Inode uint64 `json:"inode"`
	Born  int64  `json:"born,omitempty"` // time of creation in nanoseconds since 1970; 0: unknown. File systems reuse inode numbers.
}

// Is reports whether i and j identify the same directory.
func (i Identity) Is(j Identity) bool {
	return i.Inode != 0 && i.Inode == j.Inode && (i.Born == j.Born || i.Born == 0 || j.Born == 0)
}
