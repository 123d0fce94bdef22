//go:build !linux

package salvage

// Running returns false: only Linux lets a process query locks without taking them.
func Running(string) (bool, error) { return false, nil }

// Locked returns false, like Running.
func Locked(string) (bool, error) { return false, nil }

// RunningWith returns false, like Running.
func RunningWith(string, string) (bool, error) { return false, nil }
