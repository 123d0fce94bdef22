package child

import (
	"slices"
	"strings"
)

// sourced is a job that reads a repository.
type sourced interface{ From() Source }

// storeVariables are the beginnings of variables with credentials of object stores.
var storeVariables = []string{"AWS_", "AZURE_", "GOOGLE_", "IDENTITY_"}

// environment returns the variables of the child that does job: all without those secrets that it does not need. It connects
// to no cluster. It needs credentials of stores only if it reads a repository that has none of its own.
func environment(all []string, job any) []string {
	drop := []string{"ETCDCTL_PASSWORD="}
	s, ok := job.(sourced)
	if !ok || s.From().Repository == "" || s.From().Credentials != nil {
		drop = append(drop, storeVariables...)
	}
	isDropped := func(variable string) bool {
		return slices.ContainsFunc(drop, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	}
	return slices.DeleteFunc(slices.Clone(all), isDropped)
}
