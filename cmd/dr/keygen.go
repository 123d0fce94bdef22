package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

func (a *app) keygen() *cobra.Command {
	var to string
	var signing bool
	cmd := &cobra.Command{
		Use:   "keygen --to key.txt",
		Short: "Make a key that opens backups, or with --signing one that signs them",
		Long: `keygen makes an X25519 key pair as age-keygen does: the identity goes into the file, the recipient to stdout. The file
opens backups: keep it where the cluster's loss cannot reach it, and never beside the backups. The recipient is public;
give it to dr backup --recipient.

With --signing it makes an Ed25519 key pair as minisign -G -W does. The file signs: it belongs to whoever writes backups
(--sign-key). The public key is printed; give it to whoever reads them (--trust).`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the file to write; it must not exist")
	cmd.Flags().BoolVar(&signing, "signing", false, "make a key that signs")
	cmd.RunE = func(*cobra.Command, []string) error {
		if to == "" {
			return usagef("no file: say --to key.txt")
		}
		generate := openingKey
		if signing {
			generate = sign.Generate
		}
		secret, public, err := generate()
		if err != nil {
			return err
		}
		if err := writeSecret(to, secret); err != nil {
			return err
		}
		a.printf("%s\n", public)
		return nil
	}
	return cmd
}

// openingKey is a file as age-keygen writes it, and the recipient.
func openingKey() (secret []byte, public string, err error) {
	identity, recipient, err := seal.Generate()
	return fmt.Appendf(nil, "# public key: %s\n%s\n", recipient, identity), recipient, err
}

// writeSecret makes a file that only its owner reads, and never replaces one.
func writeSecret(path string, secret []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usagef("%w", err)
	}
	defer f.Close()
	if _, err := f.Write(secret); err != nil {
		return err
	}
	return f.Sync()
}
