package document

import "github.com/etcd-dr/etcd-dr/storage/check"

// Check is the result of dr check.
type Check struct {
	Repository string       `json:"repository,omitempty"` // its URL; absent if none was checked
	Store      []check.Line `json:"store"`                // the checks of the repository
	Etcd       []check.Line `json:"etcd"`                 // the checks of the live cluster; empty without --endpoints
	Wanting    []string     `json:"wanting"`              // the names of the checks with the verdict "wanting"
}

// NewCheck returns the document of the lines. Its lists are never nil.
func NewCheck(repository string, store, etcd []check.Line) Check {
	c := Check{Repository: repository, Store: store, Etcd: etcd, Wanting: []string{}}
	for _, list := range []*[]check.Line{&c.Store, &c.Etcd} {
		if *list == nil { // jq's .etcd[] fails on null
			*list = []check.Line{}
		}
		for _, l := range *list {
			if l.Verdict == check.Wanting {
				c.Wanting = append(c.Wanting, l.Name)
			}
		}
	}
	return c
}
