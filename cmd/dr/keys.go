package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// sealFlags selects the recipients or the passphrase that new backups and segments are encrypted for.
type sealFlags struct {
	recipients     []string
	recipientFiles []string
	passphraseFile string
	plain          bool
}

func (f *sealFlags) add(cmd *cobra.Command, getenv func(string) string) {
	f.addRecipients(cmd, getenv)
	cmd.Flags().BoolVar(&f.plain, "plain", false, "store without encryption, even if the newest backup is encrypted")
}

// addRecipients adds the flags of a verb that always encrypts.
func (f *sealFlags) addRecipients(cmd *cobra.Command, getenv func(string) string) {
	var fromEnv []string
	r := getenv("DR_RECIPIENT")
	if r != "" {
		fromEnv = strings.Split(r, ",")
	}
	cmd.Flags().StringSliceVar(&f.recipients, "recipient", fromEnv, "age recipient to encrypt for; may be given several times (DR_RECIPIENT)")
	cmd.Flags().StringSliceVar(&f.recipientFiles, "recipients-file", nil, "file of age recipients")
	cmd.Flags().StringVar(&f.passphraseFile, "passphrase-file", getenv("DR_PASSPHRASE_FILE"), "encrypt with the passphrase in this file instead (DR_PASSPHRASE_FILE)")
}

// load reads the recipients. Without any it returns the zero Recipients: nothing is encrypted.
func (f *sealFlags) load() (to seal.Recipients, err error) {
	texts := f.recipients
	for _, path := range f.recipientFiles {
		content, err := os.ReadFile(path)
		if err != nil {
			return seal.Recipients{}, usagef("--recipients-file: %w", err)
		}
		texts = append(texts, string(content))
	}
	if len(texts) > 0 {
		to, err = seal.ParseRecipients(strings.NewReader(strings.Join(texts, "\n")))
		if err != nil {
			return seal.Recipients{}, usagef("%w", err)
		}
	}
	if f.plain && (len(texts) > 0 || f.passphraseFile != "") {
		return seal.Recipients{}, usagef("--plain with a recipient or a passphrase: use one of them")
	}
	if f.passphraseFile == "" {
		return to, nil
	}
	passphrase, err := secretFile(f.passphraseFile)
	if err != nil {
		return seal.Recipients{}, err
	}
	recipient, err := seal.PassphraseRecipient(passphrase)
	if err != nil {
		return seal.Recipients{}, usagef("%w", err)
	}
	to, err = to.And(recipient)
	if err != nil {
		return seal.Recipients{}, usagef("%w", err)
	}
	return to, nil
}

// plainFlags selects how unencrypted backups and segments are treated if a key is given.
type plainFlags struct {
	allow bool
	skip  bool
}

func (f *plainFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.allow, "allow-plain", false, "with --identity: accept unencrypted backups and segments too")
	cmd.Flags().BoolVar(&f.skip, "skip-plain", false, "with --identity: ignore unencrypted backups and segments")
}

// mode returns how unencrypted backups and segments are treated, which depends on whether a key is given.
func (f *plainFlags) mode(keys keyFlags) plan.Plain {
	switch {
	case !keys.given() || f.allow:
		return plan.PlainTaken
	case f.skip:
		return plan.PlainSkipped
	}
	return plan.PlainRefused
}

// errAllPlain means that --skip-plain leaves no backup.
var errAllPlain = fmt.Errorf("an encrypted backup is %w: --allow-plain uses unencrypted ones", catalog.ErrNotFound)

// take returns the backups that may be opened. refused joins the errors of unencrypted ones, if they are not just left out.
func (f *plainFlags) take(all []catalog.Backup, keys keyFlags) (taken []catalog.Backup, refused error) {
	for _, b := range all {
		mode := f.mode(keys)
		switch {
		case b.Seal.Encryption != "" || mode == plan.PlainTaken:
			taken = append(taken, b)
		case mode == plan.PlainRefused:
			refused = errors.Join(refused, plan.RefusePlain("backup "+string(b.ID)))
		}
	}
	return taken, refused
}

// keyFlags selects the identities or the passphrase that open backups.
type keyFlags struct {
	identities     []string
	passphraseFile string
}

func (f *keyFlags) add(cmd *cobra.Command, getenv func(string) string) {
	f.addIdentity(cmd, getenv)
	cmd.Flags().StringVar(&f.passphraseFile, "passphrase-file", getenv("DR_PASSPHRASE_FILE"), "file with the passphrase that opens it (DR_PASSPHRASE_FILE)")
}

func (f *keyFlags) addIdentity(cmd *cobra.Command, getenv func(string) string) {
	var fromEnv []string
	i := getenv("DR_IDENTITY")
	if i != "" {
		fromEnv = []string{i}
	}
	cmd.Flags().StringSliceVar(&f.identities, "identity", fromEnv, "file with the age identity that opens the backup; may be given several times (DR_IDENTITY)")
}

func (f *keyFlags) given() bool { return len(f.identities) > 0 || f.passphraseFile != "" }

// load reads the keys. Without any it returns the zero Keys.
func (f *keyFlags) load() (keys seal.Keys, err error) {
	for _, path := range f.identities {
		file, err := os.Open(path)
		if err != nil {
			return seal.Keys{}, usagef("--identity: %w", err)
		}
		more, err := seal.ParseKeys(file)
		file.Close()
		if err != nil {
			return seal.Keys{}, usagef("--identity %s: %w", path, err)
		}
		keys = keys.And(more)
	}
	if f.passphraseFile == "" {
		return keys, nil
	}
	passphrase, err := secretFile(f.passphraseFile)
	if err != nil {
		return seal.Keys{}, err
	}
	key, err := seal.Passphrase(passphrase)
	if err != nil {
		return seal.Keys{}, usagef("%w", err)
	}
	return keys.And(key), nil
}
