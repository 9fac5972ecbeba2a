// Command milo runs a controller on multicluster-runtime with Milo's own provider, unmodified, over the projects of a server:
// each project that is ready is a cluster. It prints one line for each claim, `ok` or `FAIL` with the reason, and ends with 1 if
// one failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	provider "go.miloapis.com/milo/pkg/multicluster-runtime/milo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

const (
	// patience bounds every claim: a healthy server needs a few seconds at most.
	patience  = 60 * time.Second
	pause     = 50 * time.Millisecond
	namespace = "default"
	object    = "greeted"
	greeting  = "example.com/greeted-as"
)

// world is what the claims have at hand: root, and the projects by name.
type world struct {
	config   *rest.Config
	root     client.Client
	manager  mcmanager.Manager
	projects []string
}

func main() {
	// controller-runtime has a flag of the same name in the usual set.
	flags := flag.NewFlagSet("milo", flag.ExitOnError)
	root := flags.String("kubeconfig", "", "the server, at root")
	projects := flags.String("projects", "", "projects that there are, with commas between")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	if err := run(*root, strings.Split(*projects, ",")); err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func run(root string, projects []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := begin(ctx, root, projects)
	if err != nil {
		return fmt.Errorf("the managers start: %w", err)
	}
	claims := []struct {
		says string
		try  func(context.Context) error
	}{
		{"the provider engages every project at its address", w.engages},
		{"a reconciler writes into the project that an object came from", w.reconciles},
		{"a project that is deleted is let go, and the others go on", w.disengages},
	}
	failed := 0
	for _, claim := range claims {
		bounded, done := context.WithTimeout(ctx, patience)
		if err := claim.try(bounded); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", claim.says, err)
		} else {
			fmt.Println("ok", claim.says)
		}
		done()
	}
	if failed > 0 {
		os.Exit(1)
	}
	return nil
}

// begin starts two managers, as Milo's own services do: one that follows the projects, one for what is in them.
func begin(ctx context.Context, root string, projects []string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", root)
	if err != nil {
		return nil, err
	}
	w := &world{config: config, projects: projects}
	if w.root, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	options := manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	// What the provider reads, it reads as the kind that it watches: unstructured.
	discovering := options
	discovering.Client = client.Options{Cache: &client.CacheOptions{Unstructured: true}}
	discovery, err := manager.New(config, discovering)
	if err != nil {
		return nil, err
	}
	milo, err := provider.New(discovery, provider.Options{})
	if err != nil {
		return nil, err
	}
	if w.manager, err = mcmanager.New(config, milo, options); err != nil {
		return nil, err
	}
	greeter := mcbuilder.ControllerManagedBy(w.manager).Named("greeter").For(&corev1.ConfigMap{})
	if err := greeter.Complete(mcreconcile.Func(w.greet)); err != nil {
		return nil, err
	}
	runs := []func() error{
		func() error { return discovery.Start(ctx) },
		func() error { return milo.Run(ctx, w.manager) },
		func() error { return w.manager.Start(ctx) },
	}
	for _, run := range runs {
		go func() {
			if err := run(); err != nil && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, "a manager ended:", err)
			}
		}()
	}
	return w, nil
}

// greet is the reconciler: it writes the name of an object's project onto the object.
func (w *world) greet(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
	if request.Name != object {
		return ctrl.Result{}, nil
	}
	cluster, err := w.manager.GetCluster(ctx, request.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	found := &corev1.ConfigMap{}
	if err := cluster.GetClient().Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := client.MergeFrom(found.DeepCopy())
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, greeting, request.ClusterName)
	return ctrl.Result{}, client.IgnoreNotFound(cluster.GetClient().Patch(ctx, found, before))
}

// within is a client of a project's plane that owes nothing to the provider.
func (w *world) within(project string) (client.Client, error) {
	config := rest.CopyConfig(w.config)
	config.Host += "/projects/" + project + "/control-plane"
	return client.New(config, client.Options{})
}

func (w *world) engages(ctx context.Context) error {
	for _, project := range w.projects {
		at := "/apis/resourcemanager.miloapis.com/v1alpha1/projects/" + project + "/control-plane"
		err := until(ctx, func() error {
			cluster, err := w.manager.GetCluster(ctx, project)
			if err == nil && !strings.HasSuffix(cluster.GetConfig().Host, at) {
				err = fmt.Errorf("it is at %s", cluster.GetConfig().Host)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", project, err)
		}
	}
	return nil
}

func (w *world) reconciles(ctx context.Context) error {
	for _, project := range w.projects {
		if err := w.greeted(ctx, project, object); err != nil {
			return err
		}
	}
	return nil
}

// greeted makes an object in a project's plane, and waits until it has been greeted by the project's name.
func (w *world) greeted(ctx context.Context, project, name string) error {
	plane, err := w.within(project)
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := plane.Create(ctx, made); err != nil {
		return err
	}
	return until(ctx, func() error {
		found := &corev1.ConfigMap{}
		if err := plane.Get(ctx, client.ObjectKeyFromObject(made), found); err != nil {
			return err
		}
		if as := found.Annotations[greeting]; as != project {
			return fmt.Errorf("%s was greeted as %q", project, as)
		}
		return nil
	})
}

func (w *world) disengages(ctx context.Context) error {
	gone, stays := w.projects[0], w.projects[1]
	project := &unstructured.Unstructured{}
	project.SetAPIVersion("resourcemanager.miloapis.com/v1alpha1")
	project.SetKind("Project")
	project.SetName(gone)
	if err := w.root.Delete(ctx, project); err != nil {
		return err
	}
	err := until(ctx, func() error {
		if _, err := w.manager.GetCluster(ctx, gone); err == nil {
			return fmt.Errorf("%s is still there", gone)
		}
		return nil
	})
	if err != nil {
		return err
	}
	plane, err := w.within(stays)
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object}}
	if err := plane.Delete(ctx, made); err != nil {
		return err
	}
	return w.greeted(ctx, stays, object)
}

// until tries again until something holds, or says what was wrong last.
func until(ctx context.Context, holds func() error) error {
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
