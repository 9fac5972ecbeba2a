package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// follower is an informer, and what it told its handler.
//
// An informer may list anew after a cut and so skip what happened in between; it may not go back, nor tell of one change twice.
type follower struct {
	says     string
	kind     kind
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	informer cache.SharedIndexInformer
	handled  atomic.Int64
	mutex    sync.Mutex
	last     map[string]change
	wrong    error
}

// follow starts an informer for every source, and waits until all have listed.
func follow(ctx context.Context, c connections) ([]*follower, error) {
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		return nil, errors.New("this client-go does not stream lists")
	}
	typed := informers.NewSharedInformerFactoryWithOptions(c.typed, 0, informers.WithNamespace(namespace))
	unstructured := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, namespace, nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(c.metadata, 0, namespace, nil)
	var followers []*follower
	for _, source := range sources(c) {
		f := &follower{says: source.says, kind: source.kind, list: source.list, last: map[string]change{}}
		switch source.says {
		case "typed configmaps":
			f.informer = typed.Core().V1().ConfigMaps().Informer()
		case "typed deployments":
			f.informer = typed.Apps().V1().Deployments().Informer()
		case "dynamic " + source.kind.resource.Resource:
			f.informer = unstructured.ForResource(source.kind.resource).Informer()
		default:
			f.informer = partial.ForResource(source.kind.resource).Informer()
		}
		_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { f.note(watch.Added, nil, o) },
			UpdateFunc: func(old, o any) { f.note(watch.Modified, old, o) },
			DeleteFunc: func(o any) { f.note(watch.Deleted, nil, o) },
		})
		if err != nil {
			return nil, err
		}
		followers = append(followers, f)
	}
	typed.Start(ctx.Done())
	unstructured.Start(ctx.Done())
	partial.Start(ctx.Done())
	for _, f := range followers {
		if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
			return nil, fmt.Errorf("the informer of %s never synced", f.says)
		}
	}
	return followers, nil
}

func (f *follower) note(event watch.EventType, old, current any) {
	if gone, is := current.(cache.DeletedFinalStateUnknown); is {
		current = gone.Obj
	}
	object, err := meta.Accessor(current)
	if err != nil {
		f.fail(err)
		return
	}
	count, err := countOf(object)
	if err != nil {
		return
	}
	if old != nil {
		if before, err := meta.Accessor(old); err == nil && before.GetResourceVersion() == object.GetResourceVersion() {
			// The same object again, from a new list: handlers are told so by the equal versions.
			return
		}
	}
	f.handled.Add(1)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	last, known := f.last[object.GetName()]
	// A deletion that was missed is told with the last state that was known.
	goesOn := !known || count > last.count || event == watch.Deleted && last.event != watch.Deleted && count == last.count
	if !goesOn && f.wrong == nil {
		f.wrong = fmt.Errorf("%s: %s %d was told after %s %d", object.GetName(), event, count, last.event, last.count)
	}
	f.last[object.GetName()] = change{event, count}
}

func (f *follower) fail(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.wrong == nil {
		f.wrong = err
	}
}

// finish waits until the informer's store is what a list says, object by object, and its handler heard the last of each.
func (f *follower) finish(ctx context.Context, expected map[string][]change) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	err := eventually(ctx, func() error { return f.compare(ctx, expected) })
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.wrong != nil {
		return f.wrong
	}
	return err
}

func (f *follower) compare(ctx context.Context, expected map[string][]change) error {
	list, err := f.list(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	if stored := len(f.informer.GetStore().ListKeys()); stored != len(items) {
		return fmt.Errorf("%d are stored and %d listed", stored, len(items))
	}
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return err
		}
		stored, found, err := f.informer.GetStore().GetByKey(key)
		if err != nil || !found {
			return fmt.Errorf("%s is not stored: %v", key, err)
		}
		// A list of typed objects leaves out what kind they are.
		kindless(item)
		have := stored.(runtime.Object).DeepCopyObject()
		kindless(have)
		if !equality.Semantic.DeepEqual(item, have) {
			return fmt.Errorf("%s is stored as %v and listed as %v", key, have, item)
		}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for name, history := range expected {
		want, heard := history[len(history)-1], f.last[name]
		// Of an object that came and went between two lists nothing is heard.
		if gone := heard.event == watch.Deleted || heard.event == ""; want.event == watch.Deleted && gone {
			continue
		}
		if heard.count != want.count || heard.event == watch.Deleted || want.event == watch.Deleted {
			return fmt.Errorf("the last change of %s was %v, the handler heard %v", name, want, heard)
		}
	}
	return nil
}

func kindless(object runtime.Object) {
	if typed, err := meta.TypeAccessor(object); err == nil {
		typed.SetKind("")
		typed.SetAPIVersion("")
	}
}
