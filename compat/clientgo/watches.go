package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	watchtools "k8s.io/client-go/tools/watch"
)

var watchClaims = []sentence{
	{"a streaming list ends with its bookmark", streamingList},
	{"an informer sees every change in order", informer},
	{"a metadata informer over all namespaces sees a change", metadataInformer},
	{"a watch resumes where it was cut", resumed},
	{"a leader is elected through a lease", election},
}

func streamingList(ctx context.Context, c clients) error {
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		return errors.New("this client-go does not stream lists")
	}
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	for _, name := range []string{"a", "b", "c"} {
		if _, err := maps.Create(ctx, newConfigMap(name, nil), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	yes := true
	watcher, err := maps.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for added := 0; ; {
		event, err := next(ctx, watcher)
		if err != nil {
			return err
		}
		switch object := event.Object.(type) {
		case *corev1.ConfigMap:
			if event.Type == watch.Added {
				added++
			} else if event.Type == watch.Bookmark && object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				if added != 3 || object.ResourceVersion == "" {
					return fmt.Errorf("the bookmark came after %d objects: %v", added, object)
				}
				return nil
			}
		default:
			return fmt.Errorf("an unexpected event %v", event)
		}
	}
}

func next(ctx context.Context, watcher watch.Interface) (watch.Event, error) {
	select {
	case event, open := <-watcher.ResultChan():
		if !open {
			return event, errors.New("the watch ended")
		}
		return event, nil
	case <-ctx.Done():
		return watch.Event{}, errors.New("no event came")
	}
}

func informer(ctx context.Context, c clients) error {
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	if _, err := maps.Create(ctx, newConfigMap("before", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	seen := make(chan string, 100)
	factory := informers.NewSharedInformerFactoryWithOptions(c.typed, 0, informers.WithNamespace(c.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen <- "add " + o.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, o any) { seen <- "update " + o.(*corev1.ConfigMap).Name + " " + o.(*corev1.ConfigMap).Data["n"] },
		DeleteFunc: func(o any) { seen <- "delete " + o.(*corev1.ConfigMap).Name },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the cache never synced")
	}
	made, err := maps.Create(ctx, newConfigMap("after", map[string]string{"n": "0"}), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	want := []string{"add before", "add after"}
	for i := 1; i <= 5; i++ {
		made.Data["n"] = fmt.Sprint(i)
		if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
		want = append(want, fmt.Sprintf("update after %d", i))
	}
	if err := maps.Delete(ctx, "after", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return inOrder(ctx, seen, append(want, "delete after"))
}

func inOrder(ctx context.Context, seen <-chan string, want []string) error {
	for _, expected := range want {
		select {
		case got := <-seen:
			if got != expected {
				return fmt.Errorf("saw %q instead of %q", got, expected)
			}
		case <-ctx.Done():
			return fmt.Errorf("never saw %q", expected)
		}
	}
	return nil
}

func metadataInformer(ctx context.Context, c clients) error {
	seen := make(chan string, 100)
	factory := metadatainformer.NewSharedInformerFactory(c.metadata, 0)
	informer := factory.ForResource(configMaps).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if object := o.(*metav1.PartialObjectMetadata); object.Namespace == c.namespace {
			seen <- "add " + object.Name
		}
	}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the cache never synced")
	}
	if _, err := c.typed.CoreV1().ConfigMaps(c.namespace).Create(ctx, newConfigMap("m", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	return inOrder(ctx, seen, []string{"add m"})
}

// resumed lets the server cut the watch every second, and expects no gap and no repetition.
func resumed(ctx context.Context, c clients) error {
	maps := c.typed.CoreV1().ConfigMaps(c.namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	second := int64(1)
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = &second
			return maps.Watch(ctx, options)
		},
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	// Changes are spread over more than two lives of the watch.
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for i := range 25 {
		<-every.C
		name := fmt.Sprintf("c%02d", i)
		if _, err := maps.Create(ctx, newConfigMap(name, nil), metav1.CreateOptions{}); err != nil {
			return err
		}
		event, err := next(ctx, watcher)
		if err != nil {
			return err
		}
		object, isMap := event.Object.(*corev1.ConfigMap)
		if !isMap || event.Type != watch.Added || object.Name != name {
			return fmt.Errorf("expected %s, got %v", name, event)
		}
	}
	return nil
}

func election(ctx context.Context, c clients) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leading := make(chan struct{})
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: c.namespace},
			Client:     c.typed.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leading) },
			OnStoppedLeading: func() {},
		},
	})
	select {
	case <-leading:
		lease, err := c.typed.CoordinationV1().Leases(c.namespace).Get(ctx, "leader", metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "me") {
			return fmt.Errorf("the lease is held by %v", lease.Spec.HolderIdentity)
		}
		return err
	case <-ctx.Done():
		return errors.New("nobody became leader")
	}
}
