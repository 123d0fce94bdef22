package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

func (a *app) keygen() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "keygen --to key.txt",
		Short: "Make an age key: the identity into a file, the recipient on stdout",
		Long: `keygen makes an X25519 key pair as age-keygen does. The file opens backups: keep it where the cluster's loss cannot
reach it, and never beside the backups. The recipient is public; give it to dr backup --recipient.`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the file to write; it must not exist")
	cmd.RunE = func(*cobra.Command, []string) error {
		if to == "" {
			return usagef("no file: say --to key.txt")
		}
		identity, recipient, err := seal.Generate()
		if err != nil {
			return err
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return usagef("%w", err)
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "# public key: %s\n%s\n", recipient, identity); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		a.printf("%s\n", recipient)
		return nil
	}
	return cmd
}
