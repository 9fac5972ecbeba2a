package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

var objectClaims = []sentence{
	{"typed protobuf clients read what they wrote", readBack},
	{"errors are what callers match on", errorsMatch},
	{"a lost race is a conflict, and trying again succeeds", conflicts},
	{"roles keep every field through protobuf", roles},
	{"pages cover a list once", pages},
	{"the dynamic client sees the same objects", dynamicObjects},
	{"metadata clients get metadata alone", metadataOnly},
	{"discovery names what can be listed", discoverAll},
}

func createNamespace(ctx context.Context, c clients) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	_, err := c.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

func newConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func readBack(ctx context.Context, c clients) error {
	secrets := c.typed.CoreV1().Secrets(c.namespace)
	made, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "made-", Labels: map[string]string{"a": "b"}},
		Data:       map[string][]byte{"raw": {0, 255, 10}},
		StringData: map[string]string{"text": "words"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	read, err := secrets.Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !slices.Equal(read.Data["raw"], []byte{0, 255, 10}) || string(read.Data["text"]) != "words" {
		return fmt.Errorf("the data came back as %v", read.Data)
	}
	if read.Type != corev1.SecretTypeOpaque || read.UID == "" || read.CreationTimestamp.IsZero() || len(read.ManagedFields) != 1 {
		return fmt.Errorf("type or metadata are missing: %v", read)
	}
	return secrets.Delete(ctx, made.Name, *metav1.NewPreconditionDeleteOptions(string(read.UID)))
}

func errorsMatch(ctx context.Context, c clients) error {
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	if _, err := maps.Create(ctx, newConfigMap("a", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, exists := maps.Create(ctx, newConfigMap("a", nil), metav1.CreateOptions{})
	_, invalid := maps.Create(ctx, newConfigMap("Not Good", nil), metav1.CreateOptions{})
	_, missing := maps.Get(ctx, "missing", metav1.GetOptions{})
	_, expired := maps.List(ctx, metav1.ListOptions{ResourceVersion: "999999999999", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	wrongUID := maps.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions("another"))
	for what, held := range map[string]bool{
		"AlreadyExists": apierrors.IsAlreadyExists(exists),
		"Invalid":       apierrors.IsInvalid(invalid),
		"NotFound":      apierrors.IsNotFound(missing),
		"Timeout":       apierrors.IsTimeout(expired),
		"Conflict":      apierrors.IsConflict(wrongUID),
	} {
		if !held {
			return fmt.Errorf("not %s: %v, %v, %v, %v, %v", what, exists, invalid, missing, expired, wrongUID)
		}
	}
	return nil
}

func conflicts(ctx context.Context, c clients) error {
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	stale, err := maps.Create(ctx, newConfigMap("a", map[string]string{"n": "1"}), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	fresh := stale.DeepCopy()
	fresh.Data["n"] = "2"
	if _, err := maps.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
		return err
	}
	stale.Data["n"] = "3"
	if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update gave %v", err)
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := maps.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Data["n"] = "3"
		_, err = maps.Update(ctx, current, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	patched, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"n":"4"}}`), metav1.PatchOptions{})
	if err == nil && patched.Data["n"] != "4" {
		return fmt.Errorf("the patch gave %v", patched.Data)
	}
	return err
}

func roles(ctx context.Context, c clients) error {
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}, ResourceNames: []string{"a"}},
		{APIGroups: []string{"example.com"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: want}
	made, err := c.typed.RbacV1().Roles(c.namespace).Create(ctx, role, metav1.CreateOptions{})
	if err == nil && fmt.Sprint(made.Rules) != fmt.Sprint(want) {
		return fmt.Errorf("the rules came back as %v", made.Rules)
	}
	return err
}

func pages(ctx context.Context, c clients) error {
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	for i := range 120 {
		if _, err := maps.Create(ctx, newConfigMap(fmt.Sprintf("c%03d", i), nil), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	calls, seen := 0, []string{}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		calls++
		return maps.List(ctx, options)
	})
	pages.PageSize = 50
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: "!nothing"}, func(object runtime.Object) error {
		seen = append(seen, object.(*corev1.ConfigMap).Name)
		return nil
	})
	if err != nil {
		return err
	}
	if calls != 3 || len(seen) != 120 || !slices.IsSorted(seen) {
		return fmt.Errorf("%d calls gave %d objects: %s", calls, len(seen), strings.Join(seen, " "))
	}
	return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func dynamicObjects(ctx context.Context, c clients) error {
	maps := c.dynamic.Resource(configMaps).Namespace(c.namespace)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "d"}, "data": map[string]any{"k": "v"},
	}}
	if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	typed, err := c.typed.CoreV1().ConfigMaps(c.namespace).Get(ctx, "d", metav1.GetOptions{})
	if err != nil || typed.Data["k"] != "v" {
		return fmt.Errorf("the typed client sees %v, %v", typed, err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=d"})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "ConfigMapList" {
		return fmt.Errorf("the list is %v, %v", list, err)
	}
	return nil
}

func metadataOnly(ctx context.Context, c clients) error {
	if _, err := c.typed.CoreV1().ConfigMaps(c.namespace).Create(ctx, newConfigMap("m", map[string]string{"k": "v"}), metav1.CreateOptions{}); err != nil {
		return err
	}
	list, err := c.metadata.Resource(configMaps).Namespace(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].Name != "m" || list.Items[0].UID == "" {
		return fmt.Errorf("the list is %v", list)
	}
	return nil
}

func discoverAll(ctx context.Context, c clients) error {
	client := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		return err
	}
	all, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists))
	if err != nil {
		return err
	}
	for resource := range all {
		if _, err := c.metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", resource.String(), err)
		}
	}
	if _, found := all[configMaps]; !found || len(all) < 10 {
		return fmt.Errorf("only %d resources can be listed", len(all))
	}
	return nil
}
