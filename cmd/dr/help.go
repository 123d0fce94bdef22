package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help is dr help [VERB], which people try first.
func (a *app) help() *cobra.Command {
	return &cobra.Command{
		Use:               "help [VERB]",
		Short:             "Show what dr, or one verb, does, and its flags",
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

// unknownVerb returns an error that names the verbs of cmd that are close to word.
func unknownVerb(cmd *cobra.Command, word string) error {
	path := strings.TrimPrefix(cmd.CommandPath()+" "+word, "dr ")
	return usagef("unknown verb %q%s", path, didYouMean(cmd, word, "dr help shows all"))
}

// didYouMean returns the part of an error that names the suggestions of cmd, or what else helps.
func didYouMean(cmd *cobra.Command, word, otherwise string) string {
	cmd.SuggestionsMinimumDistance = 2
	if close := cmd.SuggestionsFor(word); len(close) > 0 {
		return fmt.Sprintf(": did you mean %s?", strings.Join(close, " or "))
	}
	return ": " + otherwise
}

// badFlag returns the error of a command line with flags that cannot be parsed. Of an unknown flag it names the way it is
// done here, if it is etcdctl's or etcdutl's, or flags that are close to it.
func badFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usagef("%w", err)
	}
	name := unknown.GetSpecifiedName()
	if way := foreignFlags[name]; way != "" {
		return usagef("--%s: %s", name, way)
	}
	flags := &cobra.Command{} // cobra finds what is close among commands alone
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return usagef("%w%s", err, didYouMean(flags, "--"+name, cmd.CommandPath()+" --help shows all"))
}

// foreignFlags are the flags of etcdctl and etcdutl that dr does not take, and the way here.
var foreignFlags = map[string]string{
	"password":                "a password in the command line can be read by every process of this machine: use --password-file, ETCDCTL_PASSWORD or the prompt",
	"auth-jwt-token":          "dr logs in itself: use --user with --password-file, or a client certificate (--cert, --key) whose CN is a user",
	"insecure-transport":      "the scheme decides: write http:// or https:// in --endpoints",
	"keepalive-time":          "leave it out: dr asks a silent connection for a sign of life every 10 s",
	"keepalive-timeout":       "leave it out: dr gives a silent connection up after 10 s",
	"max-request-bytes":       "leave it out: dr sends nothing large",
	"max-recv-bytes":          "leave it out: dr takes answers of any size",
	"debug":                   "leave it out: -o json prints everything that happens as JSON lines",
	"hex":                     "leave it out: dr prints keys that are no text as base64 with -o json",
	"initial-memory-map-size": "leave it out: dr maps a database as large as it is",
	"timeout":                 "leave it out: dr waits for no lock on a file, it copies",
}
