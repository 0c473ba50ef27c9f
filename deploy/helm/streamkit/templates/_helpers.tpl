{{- define "streamkit.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Pod names end in -N, jobs and secrets in a word: 50 characters leave room for both. */}}
{{- define "streamkit.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "streamkit.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "streamkit.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "streamkit.selectorLabels" -}}
app.kubernetes.io/name: {{ include "streamkit.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "streamkit.labels" -}}
{{ include "streamkit.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Labels of an instance; those of a job differ, so that no Service or NetworkPolicy takes it for one. */}}
{{- define "streamkit.instanceLabels" -}}
{{ include "streamkit.selectorLabels" . }}
app.kubernetes.io/component: instance
{{- end -}}

{{- define "streamkit.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "streamkit.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "streamkit.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "streamkit.tokenSecretName" -}}
{{- .Values.http.tokenSecret.name | default (printf "%s-http" (include "streamkit.fullname" .)) -}}
{{- end -}}

{{- define "streamkit.configMapName" -}}
{{- .Values.topology.existingConfigMap | default (printf "%s-topology" (include "streamkit.fullname" .)) -}}
{{- end -}}

{{/* The folder with the topology, and the path of the topology in it. */}}
{{- define "streamkit.folder" -}}
{{- .Values.topology.imagePath | default "/app" -}}
{{- end -}}
{{- define "streamkit.topologyPath" -}}
{{- printf "%s/%s" (include "streamkit.folder" .) .Values.topology.file -}}
{{- end -}}

{{/* Settings as --set arguments, the same for the application, the check before an upgrade and the job. */}}
{{- define "streamkit.settings" -}}
- --set=bootstrap.servers={{ .Values.kafka.bootstrapServers }}
{{- range $key, $value := .Values.config }}
- {{ printf "--set=%s=%v" $key $value | quote }}
{{- end }}
{{- end -}}

{{- define "streamkit.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "streamkit.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "streamkit.checkValues" -}}
{{- if not (or .Values.topology.files .Values.topology.existingConfigMap .Values.topology.imagePath) -}}
{{- fail "topology: give files (--set-file 'topology.files.topology\\.yaml=topology.yaml'), existingConfigMap or imagePath" -}}
{{- end -}}
{{- if and .Values.topology.files (not .Values.topology.existingConfigMap) (not .Values.topology.imagePath) (not (hasKey .Values.topology.files .Values.topology.file)) -}}
{{- fail (printf "topology.file is %s, but topology.files has only %s" .Values.topology.file (keys .Values.topology.files | sortAlpha | join ", ")) -}}
{{- end -}}
{{- range list "bootstrap.servers" "state.dir" "group.instance.id" "consumer.group.instance.id" "application.server" "http.peers" "num.standby.replicas" "session.timeout.ms" "consumer.session.timeout.ms" -}}
{{- if hasKey $.Values.config . -}}
{{- fail (printf "config: %s is set by the chart: see kafka, state, standbyReplicas, staticMembership and http" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
