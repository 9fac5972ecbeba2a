package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "mica.dev/compat/operator/v1"
)

// patience bounds every wait: what is waited for takes milliseconds.
const patience = 40 * time.Second

var (
	environment *envtest.Environment
	config      *rest.Config
	// direct reads from the server, not from a cache.
	direct client.Client
	// warnings are what the server warned direct of.
	warnings = &warningLog{}
)

// TestMain runs the tests against the server that envtest starts from $KUBEBUILDER_ASSETS, or, with $USE_EXISTING_CLUSTER=true,
// against the one that $KUBECONFIG names.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func withServer(run func() int) (code int, err error) {
	environment = &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{
			Scheme: NewScheme(), Paths: []string{filepath.Join("config", "crd.yaml")}, ErrorIfPathMissing: true, CleanUpAfterUse: true,
		},
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("config", "webhooks.yaml")}},
	}
	started := time.Now()
	if config, err = environment.Start(); err != nil {
		return 1, fmt.Errorf("start: %w", err)
	}
	fmt.Printf("the environment was ready after %d ms\n", time.Since(started).Milliseconds())
	defer func() {
		if stopped := environment.Stop(); stopped != nil && err == nil {
			code, err = 1, fmt.Errorf("stop: %w", stopped)
		}
	}()
	config.WarningHandler = warnings
	if direct, err = client.New(config, client.Options{Scheme: NewScheme()}); err != nil {
		return 1, err
	}
	stop, err := startWithWebhooks()
	if err != nil {
		return 1, err
	}
	defer stop()
	return run(), nil
}

// startWithWebhooks runs the operator that looks after Sites without a class and answers the webhooks of all.
func startWithWebhooks() (stop func(), err error) {
	mgr, err := newManager("", ctrl.Options{WebhookServer: webhook.NewServer(webhook.Options{
		Host: environment.WebhookInstallOptions.LocalServingHost, Port: environment.WebhookInstallOptions.LocalServingPort,
		CertDir: environment.WebhookInstallOptions.LocalServingCertDir,
	})})
	if err != nil {
		return nil, err
	}
	if err := SetupWebhooks(mgr); err != nil {
		return nil, err
	}
	stop = start(mgr)
	// Sites cannot even be listed before the webhooks answer.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	served := mgr.GetWebhookServer().StartedChecker()
	for served(nil) != nil {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the webhooks do not answer: %w", served(nil))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return stop, nil
}

// newManager makes an operator for the Sites of a class.
func newManager(class string, options ctrl.Options) (ctrl.Manager, error) {
	options.Scheme = NewScheme()
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	return mgr, (&Reconciler{Client: mgr.GetClient(), Class: class}).SetupWithManager(mgr)
}

// start runs a manager until stop, which returns when it has ended.
func start(mgr ctrl.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "a manager ended with", err)
		}
	}
}

// story is what a test has at hand: a namespace of its own.
type story struct {
	*testing.T
	ctx       context.Context
	namespace string
}

func begin(t *testing.T) story {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-"}}
	if err := direct.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return story{t, t.Context(), namespace.Name}
}

func (s story) site(name string, change func(*v1.Site)) *v1.Site {
	site := &v1.Site{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	site.Spec.Pages = map[string]string{"index": "hello"}
	if change != nil {
		change(site)
	}
	return site
}

// created is a Site that the server has taken.
func (s story) created(name string, change func(*v1.Site)) *v1.Site {
	s.Helper()
	site := s.site(name, change)
	s.must(direct.Create(s.ctx, site))
	return site
}

func (s story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually reads an object until it is as it should be.
func (s story) eventually(object client.Object, what string, holds func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := direct.Get(s.ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && holds() {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("waited in vain until %s: %v %+v", what, err, object)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// until waits for a state.
func (s story) until(what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited in vain until %s", what)
		}
	}
}

// changed reads an object, changes it and writes it, again if the operator was faster.
func (s story) changed(object client.Object, change func()) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := direct.Get(s.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change()
		return direct.Update(s.ctx, object)
	}))
}

// refused expects an error that says something.
func (s story) refused(err error, says string) {
	s.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		s.Fatalf("the error is %v and should say %q", err, says)
	}
}

type warningLog struct {
	mutex sync.Mutex
	texts []string
}

// HandleWarningHeader keeps a warning.
func (w *warningLog) HandleWarningHeader(_ int, _ string, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warningLog) has(text string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, said := range w.texts {
		if said == text {
			return true
		}
	}
	return false
}
