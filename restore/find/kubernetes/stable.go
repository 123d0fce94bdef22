package kubernetes

import "k8s.io/apimachinery/pkg/runtime/schema"

// graduated are the kinds that have a stable version but that some API servers store in a beta version, so that the previous
// release can read them if an upgrade is undone. Both versions have the same protobuf message. Kinds in which a field has another
// meaning, as in policy/v1beta1, are left out.
var graduated = map[schema.GroupVersion][]string{
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: {
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	},
	{Group: "batch", Version: "v1beta1"}:             {"CronJob"},
	{Group: "networking.k8s.io", Version: "v1beta1"}: {"IPAddress", "ServiceCIDR"},
	{Group: "resource.k8s.io", Version: "v1beta2"}:   {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"},
	{Group: "storage.k8s.io", Version: "v1beta1"}:    {"CSIStorageCapacity", "VolumeAttributesClass"},
}

const (
	definitions   = "apiextensions.k8s.io"
	registrations = "apiregistration.k8s.io"
)

// stable returns the kind in the version that an API server serves by default, for kubectl apply. The server serves no beta
// version unless it is configured to.
func stable(kind schema.GroupVersionKind) schema.GroupVersionKind {
	for _, name := range graduated[kind.GroupVersion()] {
		if name == kind.Kind {
			kind.Version = "v1"
		}
	}
	if kind.Group == definitions {
		kind.Version = "v1"
	}
	return kind
}

// builtInKind reports whether the API server itself defines a kind.
func builtInKind(kind schema.GroupVersionKind) bool {
	return kind.Group == definitions || kind.Group == registrations || scheme().Recognizes(kind)
}

// oncePerDefinition maps the fields that v1beta1 may store once for all versions to their names in v1, which stores them in
// each version.
var oncePerDefinition = map[string]string{
	"validation": "schema", "subresources": "subresources", "additionalPrinterColumns": "additionalPrinterColumns",
	"selectableFields": "selectableFields",
}

// stabilizeDefinition converts the spec of a CustomResourceDefinition to v1, as pkg/apis/apiextensions/v1/conversion.go of
// apiextensions-apiserver does. API servers store definitions as v1beta1, which is smaller, and serve only v1.
func stabilizeDefinition(spec map[string]any) {
	versions, _ := spec["versions"].([]any)
	name, one := spec["version"].(string)
	if one && len(versions) == 0 {
		versions = []any{map[string]any{"name": name, "served": true, "storage": true}}
		spec["versions"] = versions
	}
	delete(spec, "version")
	for field, versionField := range oncePerDefinition {
		shared, ok := spec[field]
		delete(spec, field)
		for _, version := range versions {
			version, is := version.(map[string]any)
			if ok && is {
				version[versionField] = shared
			}
		}
	}
	for _, version := range versions {
		version, is := version.(map[string]any)
		if is {
			stabilizeColumns(version)
		}
	}
	stabilizeConversion(spec)
}

func stabilizeColumns(version map[string]any) {
	columns, _ := version["additionalPrinterColumns"].([]any)
	for _, column := range columns {
		column, _ := column.(map[string]any)
		path, beta := column["JSONPath"]
		if beta {
			column["jsonPath"] = path
			delete(column, "JSONPath")
		}
	}
}

func stabilizeConversion(spec map[string]any) {
	conversion, _ := spec["conversion"].(map[string]any)
	webhook := map[string]any{}
	for field, newField := range map[string]string{
		"webhookClientConfig": "clientConfig", "conversionReviewVersions": "conversionReviewVersions",
	} {
		value, ok := conversion[field]
		if ok {
			webhook[newField] = value
			delete(conversion, field)
		}
	}
	if len(webhook) > 0 {
		conversion["webhook"] = webhook
	}
}
