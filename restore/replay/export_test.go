package replay

// Meet is for tests.
func (k Keys) Meet(other Keys) bool { return k.meet(other) }
