package controller

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// lock returns for how long, and in which mode, a repository's store refuses to delete new objects; the zero Lock if l is nil.
func (d *declaration) lock(l *v1alpha1.Lock, field string) declared.Lock {
	if l == nil {
		return declared.Lock{}
	}
	before := len(d.faults)
	set := declared.Lock{For: d.duration(l.For, field+".for"), Mode: l.Mode}
	if set.For == 0 && len(d.faults) == before {
		d.fault(field+".for", errors.New("0s locks nothing: use a longer time, such as 30d, or remove lock"))
	}
	return set
}

// signKey returns the signing key in a Secret. If the Secret has none, it adds a fault and returns "".
func (d *declaration) signKey(s v1alpha1.SignKeySecret, field string) string {
	data, ok := d.secret(field, s.Name)
	key := cmp.Or(s.Key, "sign.key")
	if ok && len(data[key]) == 0 {
		d.fault(field, fmt.Errorf("secret %s has no key %q: store the file of dr keygen --signing under it, or name its key in key", s.Name, key))
	}
	return string(data[key])
}

// limit returns the most bytes a second to and from a repository's store; 0 for nil: no limit.
func (d *declaration) limit(l *resource.Quantity, field string) int64 {
	switch {
	case l == nil:
		return 0
	case l.IsZero():
		d.fault(field, errors.New("0 bytes a second never end: use at least 64Ki, or remove limit"))
	case d.spool == "":
		d.fault(field, errors.New("it would slow the member's snapshot down, as the operator has no folder where a backup waits for the store: "+
			"have the operator started with --spool-dir (spool.enabled in the chart), or remove limit"))
	}
	return l.Value()
}

// authority returns the certificates of a store's CA in a Secret; nil and a fault if it has none.
func (d *declaration) authority(s v1alpha1.CASecret, field string) []byte {
	data, ok := d.secret(field, s.Name)
	key := cmp.Or(s.Key, "ca.crt")
	switch {
	case !ok:
	case len(data[key]) == 0:
		d.fault(field, fmt.Errorf("secret %s has no key %q: store the CA of the store's certificate under it, or name its key in key", s.Name, key))
	case !x509.NewCertPool().AppendCertsFromPEM(data[key]):
		d.fault(field, fmt.Errorf("secret %s: %s contains no certificate in PEM: store the CA of the store's certificate there", s.Name, key))
	default:
		return data[key]
	}
	return nil
}
