// Command multicluster runs a controller on multicluster-runtime, unmodified, with its kubeconfig provider over planes of a
// server: each plane is a cluster that a Secret in root names. It prints one line for each claim, `ok` or `FAIL` with the reason,
// and ends with 1 if one failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

const (
	// patience bounds every claim: a healthy server needs a second at most.
	patience  = 60 * time.Second
	namespace = "default"
	object    = "greeted"
	greeting  = "example.com/greeted-as"
)

// world is what the claims have at hand: root, and the planes by name.
type world struct {
	root     client.Client
	manager  mcmanager.Manager
	planes   map[string]client.Client
	contents map[string][]byte
}

func main() {
	// controller-runtime has a flag of the same name in the usual set.
	flags := flag.NewFlagSet("multicluster", flag.ExitOnError)
	root := flags.String("kubeconfig", "", "the management cluster: root")
	planes := flags.String("planes", "", "a directory with a kubeconfig for each plane, named as the plane")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	if err := run(*root, *planes); err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func run(root, directory string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := begin(ctx, root, directory)
	if err != nil {
		return fmt.Errorf("the manager starts: %w", err)
	}
	claims := []struct {
		says string
		try  func(context.Context) error
	}{
		{"the provider engages every plane that a secret names", w.engages},
		{"a reconciler writes into the plane that an object came from", w.reconciles},
		{"a plane whose secret goes is disengaged, and the others go on", w.disengages},
		{"a plane whose secret comes back is engaged and caught up with", w.engagesAgain},
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

func begin(ctx context.Context, root, directory string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", root)
	if err != nil {
		return nil, err
	}
	w := &world{planes: map[string]client.Client{}, contents: map[string][]byte{}}
	if w.root, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(directory, "*"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, errors.New("there are planes"))
	}
	for _, file := range files {
		if err := w.add(file); err != nil {
			return nil, err
		}
	}
	provider := kubeconfig.New(kubeconfig.Options{Namespace: namespace})
	options := mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	if w.manager, err = mcmanager.New(config, provider, options); err != nil {
		return nil, err
	}
	if err := provider.SetupWithManager(ctx, w.manager); err != nil {
		return nil, err
	}
	greeter := mcbuilder.ControllerManagedBy(w.manager).Named("greeter").For(&corev1.ConfigMap{})
	if err := greeter.Complete(mcreconcile.Func(w.greet)); err != nil {
		return nil, err
	}
	go func() {
		if err := w.manager.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the manager ended:", err)
		}
	}()
	return w, nil
}

func (w *world) add(file string) error {
	name := filepath.Base(file)
	content, err := readAll(file)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return err
	}
	w.contents[name] = content
	w.planes[name], err = client.New(config, client.Options{})
	return err
}

func readAll(file string) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(opened)
}

// greet is the reconciler: it writes the name of an object's cluster onto the object.
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
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, greeting, string(request.ClusterName))
	return ctrl.Result{}, client.IgnoreNotFound(cluster.GetClient().Patch(ctx, found, before))
}

func (w *world) secret(name string) *corev1.Secret {
	labels := map[string]string{kubeconfig.DefaultKubeconfigSecretLabel: "true"}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data:       map[string][]byte{kubeconfig.DefaultKubeconfigSecretKey: w.contents[name]},
	}
}

func (w *world) engages(ctx context.Context) error {
	for name := range w.planes {
		if err := w.root.Create(ctx, w.secret(name)); err != nil {
			return err
		}
	}
	for name := range w.planes {
		if err := until(ctx, func() error { return w.engaged(ctx, name) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *world) engaged(ctx context.Context, name string) error {
	_, err := w.manager.GetCluster(ctx, multicluster.ClusterName(name))
	return err
}

func (w *world) reconciles(ctx context.Context) error {
	for name := range w.planes {
		if err := w.create(ctx, name); err != nil {
			return err
		}
	}
	for name := range w.planes {
		if err := w.greeted(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) create(ctx context.Context, plane string) error {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object}}
	return w.planes[plane].Create(ctx, made)
}

func (w *world) greeted(ctx context.Context, plane string) error {
	return until(ctx, func() error {
		found := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: namespace, Name: object}
		if err := w.planes[plane].Get(ctx, key, found); err != nil {
			return err
		}
		if as := found.Annotations[greeting]; as != plane {
			return fmt.Errorf("%s was greeted as %q", plane, as)
		}
		return nil
	})
}

// leaves is the plane that goes and comes back: the first by name.
func (w *world) leaves() string {
	first := ""
	for name := range w.planes {
		if first == "" || strings.Compare(name, first) < 0 {
			first = name
		}
	}
	return first
}

func (w *world) disengages(ctx context.Context) error {
	gone := w.leaves()
	if err := w.root.Delete(ctx, w.secret(gone)); err != nil {
		return err
	}
	err := until(ctx, func() error {
		if err := w.engaged(ctx, gone); !errors.Is(err, multicluster.ErrClusterNotFound) {
			return fmt.Errorf("%s is still there: %v", gone, err)
		}
		return nil
	})
	for name := range w.planes {
		err = errors.Join(err, w.again(ctx, name))
		if name != gone {
			err = errors.Join(err, w.greeted(ctx, name))
		}
	}
	return err
}

// again makes a plane's object anew, without a greeting.
func (w *world) again(ctx context.Context, plane string) error {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object}}
	if err := w.planes[plane].Delete(ctx, old); err != nil {
		return err
	}
	return w.create(ctx, plane)
}

func (w *world) engagesAgain(ctx context.Context) error {
	back := w.leaves()
	if err := w.root.Create(ctx, w.secret(back)); err != nil {
		return err
	}
	return w.greeted(ctx, back)
}

// until tries until it works or the time is over, and says what was wrong last.
func until(ctx context.Context, holds func() error) error {
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
