package child

import (
	"slices"
	"strings"
)

// sourced is a job that reads a repository.
type sourced interface{ From() Source }

// storeVariables are the beginnings of variables with credentials of object stores.
var storeVariables = []string{"AWS_", "AZURE_", "GOOGLE_", "IDENTITY_"}

// environment returns the variables for the child that does job: all except the secrets that the child does not need. It does
// not need etcd's password, because no child logs in to a cluster. It needs the credentials of stores only if job names a
// repository without credentials.
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
