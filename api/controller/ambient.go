package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrPrefix is the error of an ambient prefix that cannot be used as written.
var ErrPrefix = fault.New(fault.Usage, "bad ambient prefix")

// namespacePlaceholder is replaced by an EtcdBackup's namespace in an ambient prefix.
const namespacePlaceholder = "{{namespace}}"

// checkPrefixes returns an error that matches ErrPrefix unless all of the ambient prefixes can be used.
func checkPrefixes(prefixes []string) error {
	for _, prefix := range prefixes {
		place, err := prefixFor(prefix, strings.Repeat("x", 63))
		switch {
		case err != nil:
			return fmt.Errorf("%w %s: %w", ErrPrefix, address.Shown(prefix), err)
		case place.Scheme == address.File:
			return fmt.Errorf("%w %s: a directory needs no identity: use s3, gs or azblob", ErrPrefix, address.Shown(prefix))
		case place.CA != "":
			return fmt.Errorf("%w %s: the option ca has no effect on it: let SSL_CERT_FILE name the CA, or remove it", ErrPrefix, address.Shown(prefix))
		}
	}
	return nil
}

// prefixFor returns an ambient prefix as it applies to EtcdBackups of a namespace.
func prefixFor(prefix, namespace string) (address.Address, error) {
	filled := strings.ReplaceAll(prefix, namespacePlaceholder, namespace)
	if strings.Contains(filled, "{{") {
		return address.Address{}, fmt.Errorf("unknown placeholder: only %s is known", namespacePlaceholder)
	}
	return address.Parse(filled)
}

// mayUseIdentity reports whether EtcdBackups of a namespace may have place opened with the operator's own identity.
func (d *declaration) mayUseIdentity(place address.Address, namespace string) bool {
	return slices.ContainsFunc(d.ambient, func(prefix string) bool {
		allowed, err := prefixFor(prefix, namespace)
		return err == nil && isBelow(place, allowed)
	})
}

// isBelow reports whether place is a prefix's place or below it. The bucket, and each option by which the operator's identity could reach
// another host, account or key, must be equal. A backslash is refused: a store that reads it as a slash could be led out of the prefix.
func isBelow(place, prefix address.Address) bool {
	below := prefix.Prefix == "" || place.Prefix == prefix.Prefix || strings.HasPrefix(place.Prefix, prefix.Prefix+"/")
	return below && !strings.Contains(place.Prefix, `\`) && withoutFreeOptions(place) == withoutFreeOptions(prefix)
}

// withoutFreeOptions returns a without the place in the bucket and the options that an EtcdBackup with the operator's identity may choose.
// Options that are added to Address later are not among them.
func withoutFreeOptions(a address.Address) address.Address {
	a.Prefix, a.Region, a.Checksums, a.StorageClass = "", "", "", ""
	return a
}

// identity adds a fault unless r, whose URL has the place and which names no Secret, may be opened with the operator's identity.
func (d *declaration) identity(r v1alpha1.Repository, place address.Address, namespace string) {
	field := "spec.repositories[" + r.Name + "]"
	if !d.mayUseIdentity(place, namespace) {
		d.fault(field+".credentialsSecret", errors.New("it is not set, and the operator may not use its own identity for this url (--ambient-prefix): "+
			"name a Secret with the store's credentials, or ask the administrator of the operator"))
	}
	if r.CASecret != nil {
		d.fault(field+".caSecret", errors.New("the operator's identity trusts no CA of a namespace, which could take its place: "+
			"remove caSecret, or name a credentialsSecret"))
	}
	if r.Lock != nil {
		d.fault(field+".lock", errors.New("the operator's identity locks nothing: its bucket is the administrator's, who could not delete the objects: "+
			"remove lock, or name a credentialsSecret"))
	}
}
