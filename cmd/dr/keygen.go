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
		Short: "Create a key that opens backups or, with --signing, one that signs them",
		Long: `keygen creates an X25519 key pair, as age-keygen does. It writes the identity to the file and prints the recipient. The
identity opens backups: store it where it survives the loss of the cluster, and never with the backups. The recipient is public:
pass it to dr backup --recipient.

With --signing it creates an Ed25519 key pair, as minisign -G -W does. The file signs: the hosts that write backups need it
(--sign-key). The public key is printed: the hosts that read backups need it (--trust).`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the file to write; it must not exist")
	cmd.Flags().BoolVar(&signing, "signing", false, "create a key that signs")
	cmd.RunE = func(*cobra.Command, []string) error {
		if to == "" {
			return usagef("no file: set --to, such as --to key.txt")
		}
		generate := openingKey
		if signing {
			generate = sign.Generate
		}
		secret, public, err := generate()
		if err != nil {
			return err
		}
		err = writeSecret(to, secret)
		if err != nil {
			return err
		}
		a.printf("%s\n", public)
		return nil
	}
	return cmd
}

// openingKey returns a new identity in the format of age-keygen, and its recipient.
func openingKey() (secret []byte, public string, err error) {
	identity, recipient, err := seal.Generate()
	return fmt.Appendf(nil, "# public key: %s\n%s\n", recipient, identity), recipient, err
}

// writeSecret creates a file that only its owner can read. It never replaces a file.
func writeSecret(path string, secret []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usagef("%w", err)
	}
	defer f.Close()
	_, err = f.Write(secret)
	if err != nil {
		return err
	}
	return f.Sync()
}
