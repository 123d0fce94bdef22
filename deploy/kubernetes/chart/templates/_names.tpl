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
- --drill-image={{ include "etcd-dr.image" . }}
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
{{- if .Values.allowLoopback }}
- --allow-loopback
{{- end }}
{{- range .Values.ambientPrefixes }}
- {{ printf "--ambient-prefix=%s" . | quote }}
{{- end }}
{{- if .Values.spool.enabled }}
- --spool-dir=/spool
{{- end }}
{{- end }}
