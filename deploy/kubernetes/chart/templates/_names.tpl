{{/* The name of all objects: the release's, which contains the chart's. */}}
{{- define "etcd-dr.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The labels by which the Deployment selects its pods. They never change: selectors are immutable. */}}
{{- define "etcd-dr.selector" -}}
app.kubernetes.io/name: etcd-dr
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "etcd-dr.labels" -}}
{{ include "etcd-dr.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The labels in "own", and those that a value adds. The same key twice would be no YAML, and selectors need the chart's own labels. */}}
{{- define "etcd-dr.addLabels" -}}
{{- $own := fromYaml .own }}
{{- range $key, $_ := .more }}
{{- if hasKey $own $key }}
{{- fail (printf "%s: %s is one of the chart's own labels: remove it" $.value $key) }}
{{- end }}
{{- end }}
{{- .own }}
{{- with .more }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "etcd-dr.metadata" -}}
name: {{ include "etcd-dr.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "etcd-dr.labels" . | nindent 2 }}
{{- end }}

{{- define "etcd-dr.subjects" -}}
- kind: ServiceAccount
  name: {{ include "etcd-dr.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "etcd-dr.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ with $tag }}:{{ . }}{{ end }}
{{- end }}

{{/* The arguments of dr; a flag whose default is right is left out. */}}
{{- define "etcd-dr.args" -}}
- operator
- --probe-listen=:8081
- --job-image={{ include "etcd-dr.image" . }}
{{- if .Values.api.enabled }}
- --listen=:2391
- --tls-cert=/api/tls/tls.crt
- --tls-key=/api/tls/tls.key
- --tokens-file=/api/tokens/tokens
{{- end }}
{{- if ne .Release.Namespace "etcd-dr" }}
- --election-namespace={{ .Release.Namespace }}
{{- end }}
{{- if ne (include "etcd-dr.name" .) "etcd-dr" }}
- --election-name={{ include "etcd-dr.name" . }}
{{- end }}
{{- with .Values.watchNamespace }}
- --namespace={{ . }}
{{- end }}
{{- with .Values.concurrency }}
- --concurrency={{ int . }}
{{- end }}
{{- with .Values.drills.concurrency }}
- --drills={{ int . }}
{{- end }}
{{- if .Values.allowLoopback }}
- --allow-loopback
{{- end }}
{{- range .Values.ambientPrefixes }}
- {{ printf "--ambient-prefix=%s" . | quote }}
{{- end }}
{{- if .Values.spool.enabled }}
- --spool-dir=/spool
- --spool-backups={{ .Values.spool.backups }}
{{- end }}
{{- end }}

{{/* The beginning of the role of something that an administrator enables, "drills" or "restores", of which values.yaml has a section. */}}
{{- define "etcd-dr.role" }}
{{- with .root }}
{{- if and .Values.watchNamespace (index .Values $.of).namespaces }}
{{- fail (printf "%s.namespaces and watchNamespace exclude each other: the operator works in watchNamespace alone" $.of) }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne .Values.watchNamespace "") }}
metadata:
  name: {{ include "etcd-dr.name" . }}-{{ $.of }}
  {{- with .Values.watchNamespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "etcd-dr.labels" . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The bindings of that role, one for each of its namespaces; "" is all namespaces. */}}
{{- define "etcd-dr.bindings" }}
{{- $name := printf "%s-%s" (include "etcd-dr.name" .root) .of }}
{{- range (index .root.Values .of).namespaces | default (list .root.Values.watchNamespace) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (ne . "") }}
metadata:
  name: {{ $name }}
  {{- with . }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "etcd-dr.labels" $.root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ ternary "Role" "ClusterRole" (ne $.root.Values.watchNamespace "") }}
  name: {{ $name }}
subjects:
  {{- include "etcd-dr.subjects" $.root | nindent 2 }}
{{- end }}
{{- end }}
