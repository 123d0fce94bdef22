package main

import (
	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore/when"
)

// requestFlags holds the flags of a new backup: its labels and encryption, and the repositories that store it.
type requestFlags struct {
	request    backup.Request
	encryption sealFlags
	require    string
	repos      *repositories
}

func (f *requestFlags) add(cmd *cobra.Command, a *app) {
	flags := cmd.Flags()
	flags.StringToStringVar((*map[string]string)(&f.request.Labels), "label", nil, "name=value, stored with the backup; may be given several times")
	f.request.Grace = grace
	flags.Var((*when.Span)(&f.request.Grace), "grace", "remove leftovers of killed backups that are older than this")
	flags.StringVar(&f.require, "require", string(backup.All), "all or any: which of several repositories must store the backup for the command to succeed")
	f.encryption.add(cmd, a.getenv)
	f.repos = a.repositoriesFlags(cmd)
	a.store.trustFlags(cmd, a.getenv)
	a.store.writeFlags(cmd, a.getenv)
	a.store.transferFlags(cmd)
	a.outputFlag(cmd)
}

// load checks the flags and completes f.request with them, and with the recipients that it reads.
func (f *requestFlags) load() (err error) {
	f.request.Require = backup.Require(f.require)
	switch {
	case f.request.Grace <= 0:
		return usagef("--grace must be above zero")
	case f.request.Require != backup.All && f.request.Require != backup.Any:
		return usagef("--require %s: use all or any", f.require)
	}
	f.request.Plain, f.request.Version = f.encryption.plain, version()
	f.request.To, err = f.encryption.load()
	return err
}

// printStored prints the backup in r, unless it has no ID and so was not stored. It returns the error of printing, or err, the error of
// the backup.
func (a *app) printStored(r backup.Result, err error) error {
	if r.ID == "" {
		return err
	}
	printErr := a.printBackup(r)
	if printErr != nil {
		return printErr
	}
	return err
}
