package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func (a *app) convert() *cobra.Command {
	var files []string
	var o foreign.Options
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Translate the manifests of another etcd operator",
		Long: `convert prints objects for the EtcdBackups, EtcdRestores and EtcdClusters of coreos' etcd-operator (etcd.database.coreos.com) and
cnych's (etcd.ydzs.io). Above each object a comment lists how it behaves differently, and what you still have to do: read it before
you apply the object. convert reads the files alone, and contacts neither a cluster nor a store.`,
		Example: `  dr convert -f backup_cr.yaml --recipient age1… > backup.yaml
  kubectl get etcdbackups.etcd.database.coreos.com -A -o yaml | dr convert -f -`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&files, "filename", "f", nil, "file with manifests; - is the standard input; repeatable")
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "of objects that name none")
	flags.StringArrayVar(&o.Recipients, "recipient", nil, "age public key that can open the backups; repeatable (default: they are not encrypted)")
	flags.BoolVar(&o.Gone, "gone", false, "nothing is left of the EtcdClusters: print StatefulSets for those of cnych's operator too")
	a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		err := checkRecipients(o.Recipients)
		if err != nil {
			return err
		}
		manifests, err := a.manifests(files)
		if err != nil {
			return err
		}
		all, err := foreign.Translate(manifests, o)
		if err != nil {
			return err
		}
		err = a.printTranslations(all)
		return errors.Join(err, untranslated(all))
	}
	return cmd
}

// checkRecipients returns an error unless all texts are age public keys.
func checkRecipients(recipients []string) error {
	if len(recipients) == 0 {
		return nil
	}
	_, err := seal.ParseRecipients(strings.NewReader(strings.Join(recipients, "\n")))
	if err != nil {
		return usagef("--recipient: %w", err)
	}
	return nil
}

// manifests reads the files.
func (a *app) manifests(names []string) (all []foreign.File, err error) {
	if len(names) == 0 {
		return nil, usagef("no file: set -f, such as -f backup_cr.yaml, or -f - for the standard input")
	}
	for _, name := range names {
		text, err := a.manifest(name)
		if err != nil {
			return nil, usagef("-f: %w", err)
		}
		all = append(all, foreign.File{Name: name, Text: text})
	}
	return all, nil
}

// manifest reads a file, or the standard input, up to one byte more than a file may have.
func (a *app) manifest(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(a.stdin, foreign.MaxFile+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, foreign.MaxFile+1))
}

func (a *app) printTranslations(all []foreign.Translation) error {
	if a.output == "json" {
		return a.json(document.Line{Result: convert.Foreign(all)})
	}
	text, err := foreign.YAML(all)
	a.printf("%s", text)
	return err
}

// untranslated returns an error if objects cannot be translated; nil if all can.
func untranslated(all []foreign.Translation) error {
	var first error
	failed := 0
	for _, t := range all {
		if t.Err != nil {
			failed++
			first = cmp.Or(first, t.Err)
		}
	}
	switch failed {
	case 0, 1:
		return first
	}
	return fmt.Errorf("%d of %d objects are not translated, the first: %w", failed, len(all), first)
}
