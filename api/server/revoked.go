package server

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// revoked contains the certificates that their authorities have revoked, by issuer and serial number.
type revoked map[[2]string]bool

// any reports whether r contains a certificate of chain.
func (r revoked) any(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
		return r[[2]string{string(c.RawIssuer), c.SerialNumber.String()}]
	})
}

// parseRevoked returns the revoked certificates of the lists ("X509 CRL") in a file of authorities. Each list must be signed by one of
// them. An expired list still applies, because a revocation does not end.
func parseRevoked(files [][]byte) (revoked, error) {
	var authorities []*x509.Certificate
	var lists []*x509.RevocationList
	for block, rest := pem.Decode(files[0]); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			authorities = append(authorities, c)
		case "X509 CRL":
			l, err := x509.ParseRevocationList(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("a list of revoked certificates: %w", err)
			}
			lists = append(lists, l)
		}
	}
	all := revoked{}
	for _, l := range lists {
		if !slices.ContainsFunc(authorities, func(c *x509.Certificate) bool { return l.CheckSignatureFrom(c) == nil }) {
			return nil, errors.New("a list of revoked certificates is signed by none of the authorities in the file")
		}
		for _, entry := range l.RevokedCertificateEntries {
			all[[2]string{string(l.RawIssuer), entry.SerialNumber.String()}] = true
		}
	}
	return all, nil
}
