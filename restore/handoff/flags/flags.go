// Package flags reads the flags with which a manager starts etcd.
package flags

import "strings"

// Parse parses --name=value and --name value. It ignores words that are no flags. A flag without a value is "true".
func Parse(args []string) map[string]string {
	all := map[string]string{}
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case found:
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value = args[i+1]
		default:
			value = "true"
		}
		all[name] = value
	}
	return all
}

// Variable returns the name of the environment variable that etcd reads in place of a flag.
func Variable(flag string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
