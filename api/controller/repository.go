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

// lock returns the time and the mode for which a store protects new objects from deletion; the zero Lock if l is nil.
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
		d.fault(field, fmt.Errorf("secret %s has no key %q: store the file from dr keygen --signing under it, or set key to the name that the Secret uses", s.Name, key))
	}
	return string(data[key])
}

// limit returns the limit for each direction, in bytes a second; 0, no limit, if l is nil.
func (d *declaration) limit(l *resource.Quantity, field string) int64 {
	switch {
	case l == nil:
		return 0
	case l.IsZero():
		d.fault(field, errors.New("0 would stop every transfer: use at least 64Ki, or remove limit"))
	case d.spool == "":
		d.fault(field, errors.New("it would slow down the member's snapshot, because the operator has no spool: "+
			"ask an administrator to set --spool-dir (spool.enabled in the chart), or remove limit"))
	}
	return l.Value()
}

// caCertificates returns the CA certificates in a Secret, in PEM. If there are none, it adds a fault and returns nil.
func (d *declaration) caCertificates(s v1alpha1.CASecret, field string) []byte {
	data, ok := d.secret(field, s.Name)
	key := cmp.Or(s.Key, "ca.crt")
	switch {
	case !ok:
	case len(data[key]) == 0:
		d.fault(field, fmt.Errorf("secret %s has no key %q: store the CA of the store's certificate under it, or set key to the name that the Secret uses", s.Name, key))
	case !x509.NewCertPool().AppendCertsFromPEM(data[key]):
		d.fault(field, fmt.Errorf("secret %s: %s contains no certificate in PEM: store the CA of the store's certificate there", s.Name, key))
	default:
		return data[key]
	}
	return nil
}
