package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help returns the verb help, which replaces cobra's.
func (a *app) help() *cobra.Command {
	return &cobra.Command{
		Use:               "help [VERB]",
		Short:             "Explain dr, or one verb and its flags",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usagef("%w", err)
			}
			if len(rest) > 0 {
				return unknownVerb(verb, rest[0])
			}
			return verb.Help()
		},
	}
}

// unknownVerb returns an error that suggests the verbs of cmd that are similar to word.
func unknownVerb(cmd *cobra.Command, word string) error {
	path := strings.TrimPrefix(cmd.CommandPath()+" "+word, "dr ")
	return usagef("unknown verb %q%s", path, didYouMean(cmd, word, "see dr help"))
}

// didYouMean returns the end of an error: the names in cmd that are similar to word or, if there are none, fallback.
func didYouMean(cmd *cobra.Command, word, fallback string) string {
	cmd.SuggestionsMinimumDistance = 2
	similar := cmd.SuggestionsFor(word)
	if len(similar) > 0 {
		return fmt.Sprintf(": did you mean %s?", strings.Join(similar, " or "))
	}
	return ": " + fallback
}

// badFlag returns the error of a command line with flags that cannot be parsed. For a flag of etcdctl or etcdutl it names the
// replacement in dr. For another unknown flag it suggests similar flags.
func badFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usagef("%w", err)
	}
	name := unknown.GetSpecifiedName()
	replacement := foreignFlags[name]
	if replacement != "" {
		return usagef("--%s: %s", name, replacement)
	}
	flags := &cobra.Command{} // cobra suggests only commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return usagef("%w%s", err, didYouMean(flags, "--"+name, "see "+cmd.CommandPath()+" --help"))
}

// foreignFlags contains the flags of etcdctl and etcdutl that dr does not have, with the replacement.
var foreignFlags = map[string]string{
	"password":                "every process of this machine can read a password on the command line: use --password-file, ETCDCTL_PASSWORD or the prompt",
	"auth-jwt-token":          "dr does not accept tokens: use --user with --password-file, or a client certificate (--cert, --key) whose CN is a user",
	"insecure-transport":      "the scheme decides: write http:// or https:// in --endpoints",
	"keepalive-time":          "leave it out: dr checks an idle connection every 10 s",
	"keepalive-timeout":       "leave it out: dr closes an unresponsive connection after 10 s",
	"max-request-bytes":       "leave it out: dr sends no large requests",
	"max-recv-bytes":          "leave it out: dr accepts responses of any size",
	"debug":                   "leave it out: -o json prints all events as JSON lines",
	"hex":                     "leave it out: -o json prints keys that are not text as base64",
	"initial-memory-map-size": "leave it out: dr maps the whole database",
	"timeout":                 "leave it out: dr copies the file and does not wait for a lock on it",
}
