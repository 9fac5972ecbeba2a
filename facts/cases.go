package main

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// decodeCases are documents whose decoding is worth pinning: broken ones, wrong types, surprises.
func decodeCases() []decodeCase {
	var cases []decodeCase
	add := func(typ string, inputs ...string) {
		for _, in := range inputs {
			cases = append(cases, decodeCase{Type: typ, In: in})
		}
	}
	// Syntax.
	whole := `{"kind":"ConfigMap","data":{"a":"b\u00e9\n","c":"d"},"x":[1,-2.5e+3,true,false,null,{"y":[]}],"immutable":true}`
	for i := range whole {
		add("/v1/ConfigMap", whole[:i])
	}
	add("/v1/ConfigMap",
		``, ` `, `null`, ` null `, `nul`, `nulx`, `tru `, `falsy`, `[]`, `"x"`, `5`, `true`, `{}`, ` { } `, `{}{}`, `{} x`, `{},`, `{"a":1,}`, `{,}`, `{"a"}`,
		`{"a" 1}`, `{"a":}`, `{"a":1 "b":2}`, `{'a':1}`, `{a:1}`, `[1,]`, `[1 2]`, `[,]`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":1e+}`, `{"a":-}`, `{"a":-a}`,
		`{"a":+1}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\n\"}", "{\"a\":\"\t\"}", `{"a":NaN}`, `hello there`, "\ufeff{}", "\u00e9", "{\"a\":1}\x00", "\x7f",
		`{"a":"unclosed`, `{"a":"unclosed\`, `{"a":"unclosed\u1`, `{"a":[`, `{"a":[1`, `{"a":{`, `{"a":{}`, `// x`, `{"a":1;}`, `]`, `}`, `{]`, `[}`, `[{]`)
	for _, raw := range []string{"{\"data\":{\"a\":\"\xff\xfe\"}}", "{\"data\":{\"\xc3\x28\":\"\xe2\x82\"}}", "{\"\xff\":1}", "\xff", "{\"data\":{\"a\":\"\xed\xa0\x80\xf5\"}}", "{\"a\xc3\":{\"b\":1}}"} {
		cases = append(cases, decodeCase{Type: "/v1/ConfigMap", In64: []byte(raw)})
	}
	// Strings and names.
	add("/v1/ConfigMap",
		`{"data":{"a":"\ud83d\ude00","b":"\ud83d","c":"\ude00x","d":"\ud83d\u0041","e":"\/\b\f\n\r\t\"\\","f":"\u2028\u2029<>&\u0000\u007f"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1"}`, `{"KIND":"ConfigMap","ApiVersion":"v1"}`, `{"\u212aind":"K"}`, `{"kind":5}`, `{"kind":{"a":1},"apiVersion":[]}`, `{"apiVersion":true,"kind":1}`,
		`{"kind":null,"apiVersion":null}`, `{"kind":"A","kind":"B"}`, `{"kind":"A","Kind":"B"}`, `{"apiVersion":"a/b/c"}`, `{"apiVersion":"/"}`, `{"apiVersion":"a/"}`, `{"apiVersion":"/v1"}`,
		`{"Data":{"a":"b"}}`, `{"data":{"A":"1","a":"2"}}`, `{"":1}`, `{"a":{"":1}}`, `{"metadata":{"":1}}`)
	// Wrong types.
	add("/v1/ConfigMap",
		`{"data":{"k":1}}`, `{"data":["x"]}`, `{"data":"x"}`, `{"data":5}`, `{"data":true}`, `{"data":{"k":{}}}`, `{"data":{"k":[]}}`, `{"data":{"k":null,"l":"x"}}`, `{"data":null}`, `{"data":{}}`,
		`{"binaryData":{"x":"***"}}`, `{"binaryData":{"x":"YQ"}}`, `{"binaryData":{"x":"YQ="}}`, `{"binaryData":{"x":"YQ=="}}`, `{"binaryData":{"x":"YQ==="}}`, `{"binaryData":{"x":"YR=="}}`, `{"binaryData":{"x":"Y\nQ\r=\n=\n"}}`,
		`{"binaryData":{"x":"YQ=Q"}}`, `{"binaryData":{"x":"Y"}}`, `{"binaryData":{"x":"="}}`, `{"binaryData":{"x":"Y="}}`, `{"binaryData":{"x":"YWI="}}`, `{"binaryData":{"x":"YWJj"}}`, `{"binaryData":{"x":"YWJjZA"}}`,
		`{"binaryData":{"x":"YWJjZGVmZ2hp*WJj"}}`, `{"binaryData":{"x":"-_-_"}}`, `{"binaryData":{"x":""}}`, `{"binaryData":{"x":null}}`, `{"binaryData":{"x":[97,98]}}`, `{"binaryData":{"x":[300,-1,1.5,"a",null,98]}}`, `{"binaryData":{"x":[]}}`, `{"binaryData":{"x":5}}`, `{"binaryData":{"x":{}}}`,
		`{"immutable":"true"}`, `{"immutable":1}`, `{"immutable":null}`, `{"immutable":false}`, `{"immutable":[]}`,
		`{"metadata":5}`, `{"metadata":[]}`, `{"metadata":null}`, `{"metadata":{"name":5}}`, `{"metadata":{"labels":{"x":true}}}`, `{"metadata":{"labels":[1]}}`, `{"metadata":{"finalizers":"x"}}`, `{"metadata":{"finalizers":[1,"a",null]}}`,
		`{"metadata":{"generation":1.0}}`, `{"metadata":{"generation":"1"}}`, `{"metadata":{"generation":9223372036854775808}}`, `{"metadata":{"generation":-0}}`, `{"metadata":{"generation":1e3}}`, `{"metadata":{"generation":-9223372036854775808}}`,
		`{"metadata":{"ownerReferences":{"a":1}}}`, `{"metadata":{"ownerReferences":[{"controller":"x"}]}}`, `{"metadata":{"ownerReferences":[null]}}`, `{"metadata":{"ownerReferences":[]}}`, `{"metadata":{"ownerReferences":["x",{"uid":1}]}}`,
		`{"metadata":{"uid":5}}`, `{"metadata":{"managedFields":[{"fieldsV1":"x","time":null,"operation":5}]}}`, `{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}`, `{"metadata":{"managedFields":[{"fieldsV1":null}]}}`,
		`{"data":{"a":1},"immutable":"x"}`, `{"immutable":"x","data":{"a":1}}`, `{"data":{"a":1},"metadata":{"creationTimestamp":"x"}}`, `{"binaryData":{"x":"*"},"data":5}`)
	// Times.
	for _, text := range []string{
		`"2020-01-02T03:04:05Z"`, `"2020-01-02T03:04:05.678Z"`, `"2020-01-02T03:04:05,5Z"`, `"2020-01-02T03:04:05+01:30"`, `"2020-01-02T3:04:05Z"`, `"2020-02-30T03:04:05Z"`, `"2020-13-02T03:04:05Z"`, `"2020-01-02T24:04:05Z"`,
		`"2020-01-02T03:60:05Z"`, `"2020-01-02T03:04:60Z"`, `"2020-01-02"`, `"x"`, `""`, `"2020-01-02T03:04:05"`, `"2020-01-02T03:04:05Zx"`, `"2020-01-02 03:04:05Z"`, `"20-01-02T03:04:05Z"`, `"2020-1-02T03:04:05Z"`, `"0001-01-01T00:00:00Z"`,
		`"2020-01-02T03:04:05+25:00"`, `"2020-01-02T03:04:05+24:60"`, `"2020-01-02T03:04:05+01:61"`, `"2020-01-02T03:04:05+0100"`, `"2020-01-02T03:04:05é"`, `5`, `true`, `{}`, `[]`, `null`, `"9999-12-31T23:59:59Z"`, `"2020-01-02T03:04:05z"`, `"2020-01-02T03:04:05.Z"`, `"\"\\"`,
	} {
		add("/v1/ConfigMap", `{"metadata":{"creationTimestamp":`+text+`,"name":5}}`)
		if text != `"0001-01-01T00:00:00Z"` {
			// Go prints a pointer to the zero time as null; we leave it out.
			add("/v1/ConfigMap", `{"metadata":{"deletionTimestamp":`+text+`}}`)
		}
		add("coordination.k8s.io/v1/Lease", `{"spec":{"renewTime":`+text+`}}`)
		add("/v1/Event", `{"eventTime":`+text+`,"firstTimestamp":`+text+`}`)
	}
	add("coordination.k8s.io/v1/Lease", `{"spec":{"renewTime":"2020-01-02T03:04:05.123456Z"}}`, `{"spec":{"renewTime":"2020-01-02T03:04:05.1234567Z"}}`, `{"spec":{"renewTime":"2020-01-02T03:04:05.12345Z"}}`, `{"spec":{"renewTime":"2020-01-02T03:04:05,123456+02:00"}}`,
		`{"spec":{"leaseDurationSeconds":2147483648}}`, `{"spec":{"leaseDurationSeconds":1.5}}`, `{"spec":{"leaseDurationSeconds":-5,"leaseTransitions":0}}`)
	// Quantities.
	for _, text := range []string{
		`"1"`, `"0"`, `"1.5"`, `"0.5"`, `".5"`, `"1500m"`, `"1000m"`, `"1Gi"`, `"1024Mi"`, `"1.5Gi"`, `"0.1Ki"`, `"100000000000000000000"`, `"1e3"`, `"1E3"`, `"1e-3"`, `"12e6"`, `"1k"`, `"1000k"`, `"1000E"`, `"+1"`, `"-1.5"`, `"007"`, `"1.000"`, `"1n"`, `"0.1n"`, `"1u"`,
		`"9223372036854775807"`, `"9223372036854775808"`, `"16Ei"`, `"-16Ei"`, `"1.0001Ki"`, `""`, `"x"`, `"1x"`, `"1 Gi"`, `" 1Gi "`, `"1ki"`, `"1KiB"`, `"."`, `"Ki"`, `"e-20"`, `"1e99999999999"`, `"1.2.3"`, `"--1"`, `1`, `1.5`, `1e3`, `0.5e-3`, `true`, `{}`, `[]`, `null`, `"1Mi1"`, `"1m5"`, `"5e"`, `"5E"`, `"\u0031"`,
		`"8Gi"`, `"1023Ki"`, `"2048"`, `"512Mi"`, `"0Gi"`, `"0.000000001"`, `"0.0000000001"`, `"100Mi"`, `"1e1000"`, `"123456789012345678901234567890"`, `"1.23456789012345678901"`,
	} {
		add("/v1/ResourceQuota", `{"spec":{"hard":{"cpu":`+text+`}}}`)
	}
	add("/v1/ResourceQuota", `{"spec":{"hard":{"cpu":"1","cpu":"2","memory":"x"}}}`, `{"spec":{"hard":["cpu"]}}`, `{}`, `{"spec":{},"status":{"hard":{}}}`)
	// Numbers or strings.
	for _, text := range []string{`80`, `"80"`, `"http"`, `1.5`, `2147483648`, `-1`, `true`, `{}`, `[1]`, `null`, `""`} {
		add("/v1/Service", `{"spec":{"ports":[{"port":80,"targetPort":`+text+`}]}}`)
	}
	add("/v1/Service", `{"spec":{"ports":[{"port":"80"},{"port":1e2}]}}`, `{"spec":{"ports":{}}}`, `{"spec":{"clusterIPs":["a",5]}}`, `{"spec":{"ports":[5,{"port":true}]}}`)
	// Embedded structs, duplicates, unknown fields.
	add("/v1/Pod",
		`{"spec":{"volumes":[{"name":"a","hostPath":{"path":5}}]}}`, `{"spec":{"volumes":[{"name":"a","hostPath":5}]}}`, `{"spec":{"volumes":[{"name":"a","configMap":{"name":5}}]}}`, `{"spec":{"containers":[{"frob":1,"name":"c"},{"ports":[{"containerPort":80,"containerport":1}]}]}}`,
		`{"spec":{"containers":[{"name":"a","image":"x"}],"containers":[{"name":"b"},{"name":"c"}],"hostname":"a","hostname":"b"}}`, `{"spec":{"containers":[{"name":"a"},{"name":"b","image":"z"}],"containers":[{"image":"i"}]}}`,
		`{"metadata":{"labels":{"a":"1","b":"2"},"labels":{"b":"3"}},"metadata":{"name":"x"}}`, `{"metadata":{"name":"a"},"metadata":null,"spec":{"nodeName":"n"},"spec":{"nodeName":null,"containers":null}}`, `{"frob":1,"frob":2,"spec":{"frob":{"x":1},"x":[{"y":1}]}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","frob":"x"}}}]}}`, `{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"x"},"exec":5}}]}}`, `{"spec":{"securityContext":{"runAsUser":"x"},"terminationGracePeriodSeconds":30.0}}`, `{"spec":{"overhead":{"cpu":1}}}`,
		`{"spec":{"containers":[{"env":[{"name":"a","valueFrom":{"configMapKeyRef":{"name":"n","key":"k","frob":1}}}]}]}}`, `{"spec":{}}`, `{}`)
	add("apps/v1/Deployment", `{}`, `{"spec":{"replicas":0,"paused":false,"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}}}}`, `{"spec":{"replicas":null,"template":{"spec":{"containers":[]}}}}`)
	add("rbac.authorization.k8s.io/v1/Role", `{}`, `{"rules":[]}`, `{"rules":null}`, `{"rules":[{"verbs":[]}]}`, `{"rules":[{"verbs":null,"apiGroups":[]}]}`, `{"rules":[{}]}`)
	add("apps/v1/ControllerRevision", `{"data":{"a":[1,2.5,null,18446744073709551615],"b":1},"revision":1}`, `{"data":null}`, `{"data":5}`, `{"data":"x"}`)
	add("authentication.k8s.io/v1/TokenReview", `{"status":{"user":{"extra":{"a":["b"],"c":null,"d":[]}}}}`, `{"status":{"user":{"extra":{"a":"b"}}}}`, `{"status":{"user":{"extra":{"a":[1]}}}}`)
	add("*/v1/DeleteOptions", `{"gracePeriodSeconds":"x"}`, `{"gracePeriodSeconds":0,"preconditions":{"uid":"a"},"dryRun":["All"],"propagationPolicy":"Foreground"}`, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":null}`, `{"propagationPolicy":5}`)
	add("*/v1/Status", `{}`, `{"status":"Failure","code":404,"details":{"causes":[{"field":"x"}],"retryAfterSeconds":1}}`)
	add("meta.k8s.io/v1/Table", `{}`, `{"rows":[{"cells":[1,"a",null,true,1.5,{"a":[1]}],"object":{"kind":"x"}}],"columnDefinitions":null}`)
	add("admission.k8s.io/v1/AdmissionReview", `{"request":{"uid":"x","object":{"a":2,"b":1},"options":null}}`, `{"response":{"uid":"x","allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`)
	// Schemas.
	crd := func(schema string) string {
		return `{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":` + schema + `}}]}}`
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":"string","default":"x","enum":["x",null,5],"frob":1}}}`, `{"items":{"type":"string","frob":1}}`, `{"items":[{"type":"a"},{"type":"b"}]}`, `{"items":[]}`, `{"items":true}`, `{"items":null}`, `{"items":{"type":5}}`, `{"items":[{"type":5}]}`, `{"items":[5]}`,
		`{"additionalProperties":true}`, `{"additionalProperties":false}`, `{"additionalProperties":{"type":"x","type":"y"}}`, `{"additionalProperties":5}`, `{"additionalProperties":null}`, `{"additionalProperties":{"properties":{"a":{"type":5}}}}`, `{"dependencies":{"a":["b"],"c":{"type":"x"},"d":[],"e":null,"f":5}}`, `{"dependencies":{"a":[5]}}`,
		`{"minimum":5,"maximum":5.0,"multipleOf":0.1,"minLength":1}`, `{"minimum":1e400}`, `{"minimum":"5"}`, `{"minimum":1e21,"maximum":1e-7,"multipleOf":123456789012345680000}`, `{"default":{"a":[1.0],"b":1000},"example":null}`, `{"x-kubernetes-int-or-string":true,"x-kubernetes-validations":[{"rule":"a"}],"x-frob":1}`,
		`{"not":{"not":{"type":5}}}`, `{"allOf":[{"required":["a",5]}]}`, `{"properties":{"items":{"items":{"items":{"type":false}}}}}`, `{"properties":5}`, `{"enum":[]}`, `{"required":[]}`, `{"$ref":"x","$schema":"y","id":"z"}`, `true`, `{"nullable":null,"pattern":null}`,
	} {
		add("apiextensions.k8s.io/v1/CustomResourceDefinition", crd(schema))
	}
	// Untyped.
	add("", `{}`, `[]`, `"x"`, `5`, `{"a":1,"a":2}`, `{"a":{"b":[{"c":1,"c":2}]}}`, `{"a":[1,1.0,1.5,1e3,-0,9223372036854775807,9223372036854775808,-9223372036854775809,18446744073709551615,0.1,1e21,1e-7,123456789.123]}`, `{"a":1e400}`, `{"a":[1e400,{"b":1e500}]}`,
		`{"b":"<>&","a":"\u2028","\u00e9":1,"Z":1,"_":1}`, `{"a":1,"b":{"c":1},"b":{"d":1}}`, `{"a.b":{"c\"d":{"x":1,"x":2}}}`, `{"a":true,"b":false,"c":null,"d":[],"e":{}}`)
	return cases
}

type envelopeCase struct {
	Type   string `json:"type"`
	JSON   string `json:"json"`
	Hex    string `json:"hex"`
	object runtime.Object
}

// envelopeCases are objects whose whole protobuf message is kept, to be read by people.
func envelopeCases() []envelopeCase {
	return []envelopeCase{
		{Type: "/v1/ConfigMap", object: &corev1.ConfigMap{}, JSON: `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5","creationTimestamp":"2020-01-02T03:04:05Z","labels":{"b":"2","a":"1"}},"data":{"k":"v"},"binaryData":{"x":"AQID"},"immutable":false}`},
		{Type: "/v1/ConfigMap", object: &corev1.ConfigMap{}, JSON: `{"kind":"ConfigMap","apiVersion":"v1"}`},
		{Type: "/v1/ConfigMapList", object: &corev1.ConfigMapList{}, JSON: `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`},
		{Type: "/v1/Service", object: &corev1.Service{}, JSON: `{"kind":"Service","apiVersion":"v1","metadata":{"name":"s"},"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":-1,"targetPort":8080}],"selector":{"a":"b"}}}`},
		{Type: "apps/v1/Deployment", object: &appsv1.Deployment{}, JSON: `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:a":{}}}]},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"500m","memory":"1Gi"}}}],"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}]}}}}`},
		{Type: "rbac.authorization.k8s.io/v1/Role", object: &rbacv1.Role{}, JSON: `{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","rules":[{"verbs":["get"]}]}`},
		{Type: "apiextensions.k8s.io/v1/CustomResourceDefinition", object: &apiextensionsv1.CustomResourceDefinition{}, JSON: `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"w.x.y"},"spec":{"group":"x.y","names":{"plural":"w","kind":"W"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","minimum":1.5,"default":{"a":1},"properties":{"p":{"additionalProperties":false,"items":{"type":"string"}}}}}}]}}`},
		{Type: "apidiscovery.k8s.io/v2/APIGroupDiscoveryList", object: &apidiscoveryv2.APIGroupDiscoveryList{}, JSON: `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"deployments","scope":"Namespaced","singularResource":"deployment","verbs":["get"],"responseKind":{"group":"","version":"","kind":"Deployment"}}]}]}]}`},
		{Type: "meta.k8s.io/v1/PartialObjectMetadata", object: &metav1.PartialObjectMetadata{}, JSON: `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","deletionTimestamp":"2020-01-02T03:04:05Z","deletionGracePeriodSeconds":0}}`},
	}
}
