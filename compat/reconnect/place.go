package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const namespace = "default"

// kind is what a writer makes.
type kind struct {
	resource schema.GroupVersionResource
	name     string
	body     map[string]any
}

var (
	configMap = kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap",
		map[string]any{"data": map[string]any{"some": "text"}}}
	deployment = kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment",
		map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		}}}
	widget = kind{schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, "Widget",
		map[string]any{"spec": map[string]any{"size": int64(3)}}}
)

var kinds = []kind{configMap, deployment, widget}

// connections are the three ways in which controllers look at objects.
type connections struct {
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

func connect(config *rest.Config) connections {
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	protobuf.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return connections{
		typed:    kubernetes.NewForConfigOrDie(protobuf),
		dynamic:  dynamic.NewForConfigOrDie(config),
		metadata: metadata.NewForConfigOrDie(config),
	}
}

// place is root or a plane, who writes to it and who follows.
type place struct {
	name      string
	straight  connections
	writers   []*writer
	recorders []*recorder
	followers []*follower
}

func newPlace(ctx context.Context, server *server, proxies []*proxy, name string) (*place, error) {
	prefix := ""
	if name != "root" {
		if err := createPlane(ctx, server, name); err != nil {
			return nil, err
		}
		prefix = "/clusters/" + name + "/control-plane"
	}
	direct, err := server.config(server.address, prefix)
	if err != nil {
		return nil, err
	}
	var cut []connections
	for _, proxy := range proxies {
		config, err := server.config(proxy.address(), prefix)
		if err != nil {
			return nil, err
		}
		cut = append(cut, connect(config))
	}
	p := &place{name: name, straight: connect(direct)}
	if err := define(ctx, p.straight.dynamic); err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		p.writers = append(p.writers, newWriter(kind, p.straight.dynamic.Resource(kind.resource).Namespace(namespace)))
	}
	for _, source := range sources(cut[0]) {
		recorder, err := record(ctx, source)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", source.says, err)
		}
		p.recorders = append(p.recorders, recorder)
	}
	if p.followers, err = follow(ctx, cut[1]); err != nil {
		return nil, err
	}
	return p, nil
}

func createPlane(ctx context.Context, server *server, name string) error {
	config, err := server.config(server.address, "")
	if err != nil {
		return err
	}
	planes := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "mica.dev", Version: "v1alpha1", Resource: "planes"})
	_, err = planes.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": map[string]any{"name": name},
	}}, metav1.CreateOptions{})
	return err
}

// define makes the custom kind and waits until it is served.
func define(ctx context.Context, client dynamic.Interface) error {
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type":       "object",
					"properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer"}}}},
				}},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return eventually(ctx, func() error {
		_, err := client.Resource(widget.resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// claimed is a sentence about what was seen, and why it is not true if it is not.
type claimed struct {
	says string
	err  error
}

func (p *place) claims(ctx context.Context) []claimed {
	expected := map[string]map[string][]change{}
	for _, writer := range p.writers {
		expected[writer.kind.resource.Resource] = writer.history
	}
	var claims []claimed
	for _, recorder := range p.recorders {
		err := recorder.finish(ctx, expected[recorder.source.kind.resource.Resource])
		claims = append(claims, claimed{fmt.Sprintf("a resumed watch of %s has no gap and no repetition (%d changes in %d watches)",
			recorder.source.says, recorder.seen, recorder.watches), err})
	}
	for _, follower := range p.followers {
		err := follower.finish(ctx, expected[follower.kind.resource.Resource])
		claims = append(claims, claimed{fmt.Sprintf("an informer of %s ends with what a list says (%d changes)", follower.says, follower.handled.Load()), err})
	}
	return claims
}

// eventually tries until it works or the time is over.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func asStatus(err error, status *apierrors.APIStatus) bool { return errors.As(err, status) }
