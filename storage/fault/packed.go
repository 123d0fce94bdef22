package fault

import "slices"

// Packed is an error as JSON, for another process. It carries every kind and Sentinel that the error matches; any other
// identity is lost.
type Packed struct {
	Message   string     `json:"message"`
	Kinds     []Kind     `json:"kinds,omitempty"`
	Sentinels []Sentinel `json:"sentinels,omitempty"`
	Remedy    string     `json:"remedy,omitempty"`
}

// Pack returns err as a Packed. err must not be nil.
func Pack(err error) Packed {
	p := Packed{Message: err.Error(), Remedy: RemedyOf(err)}
	kind := KindOf(err)
	if kind != Internal {
		p.Kinds = []Kind{kind}
	}
	walk(err, func(err error) bool {
		switch e := err.(type) {
		case Kind:
			p.Kinds = appendNew(p.Kinds, e)
		case Sentinel:
			p.Sentinels = appendNew(p.Sentinels, e)
		}
		return true
	})
	return p
}

func appendNew[T comparable](list []T, one T) []T {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

// Err returns the error that was packed: it has its message and remedy, and matches the same kinds and sentinels.
func (p Packed) Err() error {
	return &unpacked{p}
}

type unpacked struct{ Packed }

func (u *unpacked) Error() string { return u.Message }

func (u *unpacked) Unwrap() (all []error) {
	for _, s := range u.Sentinels {
		all = append(all, s)
	}
	for _, k := range u.Kinds {
		all = append(all, k)
	}
	return all
}
