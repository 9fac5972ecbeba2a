package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// source is one kind, seen in one of the three ways.
type source struct {
	says  string
	kind  kind
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func sources(c connections) []source {
	found := []source{
		{"typed configmaps", configMap, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.typed.CoreV1().ConfigMaps(namespace).List(ctx, o)
		}, c.typed.CoreV1().ConfigMaps(namespace).Watch},
		{"typed deployments", deployment, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.typed.AppsV1().Deployments(namespace).List(ctx, o)
		}, c.typed.AppsV1().Deployments(namespace).Watch},
	}
	for _, kind := range kinds {
		unstructured, partial := c.dynamic.Resource(kind.resource).Namespace(namespace), c.metadata.Resource(kind.resource).Namespace(namespace)
		found = append(found,
			source{"dynamic " + kind.resource.Resource, kind, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return unstructured.List(ctx, o)
			}, unstructured.Watch},
			source{"the metadata of " + kind.resource.Resource, kind, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return partial.List(ctx, o)
			}, partial.Watch})
	}
	return found
}

// recorder watches from where it last was, for ever, and keeps every event.
type recorder struct {
	source  source
	mutex   sync.Mutex
	history map[string][]change
	seen    int
	watches int
	last    uint64
	failed  error
}

func record(ctx context.Context, source source) (*recorder, error) {
	r := &recorder{source: source, history: map[string][]change{}}
	list, err := source.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	revision, err := meta.NewAccessor().ResourceVersion(list)
	if err != nil {
		return nil, err
	}
	if r.last, err = strconv.ParseUint(revision, 10, 64); err != nil {
		return nil, err
	}
	go r.run(ctx)
	return r, nil
}

func (r *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		watcher, err := r.source.watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatUint(r.last, 10), AllowWatchBookmarks: true})
		if err == nil {
			r.watches++
			err = r.read(watcher)
			watcher.Stop()
		}
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Code < 500 && status.Status().Code != 429 || errors.Is(err, errWrong) {
			r.mutex.Lock()
			r.failed = err
			r.mutex.Unlock()
			return
		}
		// A server that is away is asked again soon, not at once.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errWrong = errors.New("this must not be")

func (r *recorder) read(watcher watch.Interface) error {
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s of %q has the resource version %q", errWrong, event.Type, object.GetName(), object.GetResourceVersion())
		}
		if revision < r.last || revision == r.last && event.Type != watch.Bookmark {
			return fmt.Errorf("%w: %s of %q at %d came after %d", errWrong, event.Type, object.GetName(), revision, r.last)
		}
		r.last = revision
		if event.Type == watch.Bookmark {
			continue
		}
		count, err := countOf(object)
		if err != nil {
			// Not one of ours: what every namespace is born with.
			continue
		}
		r.mutex.Lock()
		r.history[object.GetName()] = append(r.history[object.GetName()], change{event.Type, count})
		r.seen++
		r.mutex.Unlock()
	}
	return nil
}

// finish waits until as much was seen as was done, and compares.
func (r *recorder) finish(ctx context.Context, expected map[string][]change) error {
	total := 0
	for _, history := range expected {
		total += len(history)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := eventually(ctx, func() error {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.failed == nil && r.seen < total {
			return fmt.Errorf("saw %d of %d changes", r.seen, total)
		}
		return nil
	})
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.failed != nil {
		return r.failed
	}
	for name, want := range expected {
		if got := r.history[name]; !slices.Equal(got, want) {
			return fmt.Errorf("%s changed as %v but was seen as %v", name, want, got)
		}
	}
	if r.watches <= 2*kills {
		return fmt.Errorf("there were only %d watches: too little was cut", r.watches)
	}
	return err
}
