{{- define "fairlead.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* The labels of a part; takes (list . "serve"). */ -}}
{{- define "fairlead.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "fairlead.labels" -}}
{{- $root := index . 0 -}}
{{ include "fairlead.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end -}}

{{- define "fairlead.config" -}}
fairlead.toml: |
  {{- .Values.config | nindent 2 }}
{{- end -}}

{{- /* The annotations of every pod: a changed config starts pods with it. */ -}}
{{- define "fairlead.annotations" -}}
checksum/config: {{ .Values.config | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What every pod has in common; takes (list . "config"), the last part of its ConfigMap's name. */ -}}
{{- define "fairlead.pod" -}}
{{- $root := index . 0 -}}
{{- $config := index . 1 -}}
{{- with $root.Values }}
automountServiceAccountToken: false
{{- if .serviceAccountName }}
serviceAccountName: {{ .serviceAccountName }}
{{- end }}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if .config }}
  - name: config
    configMap:
      name: {{ $root.Release.Name }}-{{ $config }}
  {{- end }}
  {{- with .extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* What every container has in common. */ -}}
{{- define "fairlead.container" -}}
image: {{ include "fairlead.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if .Values.config }}
  - name: config
    mountPath: /etc/fairlead
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "fairlead.env" -}}
- name: FAIRLEAD_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
{{- if .Values.config }}
- name: FAIRLEAD_CONFIG
  value: /etc/fairlead/fairlead.toml
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
