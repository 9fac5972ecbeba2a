//! The guide to organizations and projects, run as it is written: every command of it, and its controller.

mod welcome;

use std::path::Path;
use std::time::Duration;

use mica_runtime::Access;
use tokio_util::sync::CancellationToken;

use super::process::{Shell, Up};

/// How long a state may take to come: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// The blocks of a guide that are in one language, in order.
fn blocks(guide: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let mut blocks = Vec::new();
    for part in guide.split(&fence).skip(1) {
        let (block, _) = part.split_once("```").expect("a block ends");
        blocks.push(block.to_owned());
    }
    blocks
}

fn guide() -> String {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    std::fs::read_to_string(project.join("docs/howto/projects.md")).unwrap()
}

/// A command that must fail, for a block in which the last line says so.
fn refused(block: &str) -> (String, &str) {
    let (before, last) = block.trim_end().rsplit_once('\n').unwrap();
    (before.to_owned(), last)
}

#[tokio::test(flavor = "multi_thread")]
async fn from_an_empty_directory_to_two_organizations_and_a_controller_across_all_projects() {
    let (text, home) = (guide(), tempfile::tempdir().unwrap());
    let commands = blocks(&text, "sh");
    let [create, use_them, see, suspend, resume] = &commands[..] else {
        panic!("the guide has other commands than are tested: {commands:?}")
    };
    // On a port that is free, whatever else runs here.
    let create = create.strip_prefix("mica up &\n").expect("it begins with a server");
    let _server = Up::start(home.path(), &[]);
    let shell = Shell { home };

    let made = shell.run(create);
    assert!(
        made.contains("organization/acme created") && made.contains("project/lab created"),
        "{made}"
    );
    let used = shell.run(use_them);
    let (created, listed) = used
        .split_once("configmap/hello created")
        .expect("it is created in web");
    assert!(!listed.contains("hello"), "{created}{used}");
    let seen = shell.run(see);
    let projects = seen
        .lines()
        .filter(|line| line.starts_with("web ") || line.starts_with("shop "));
    assert_eq!(projects.count(), 2, "{seen}");
    assert!(!seen.lines().any(|line| line.starts_with("lab ")), "{seen}");
    assert!(seen.contains("acme/web") && seen.contains("umbrella/lab"), "{seen}");

    // The controller of the guide is the one that is compiled here.
    assert_eq!(blocks(&text, "rust"), [include_str!("welcome.rs")]);
    let kubeconfig = std::fs::read_to_string(shell.home.path().join(".mica/admin.kubeconfig")).unwrap();
    let manager = welcome::manager(Access::from_kubeconfig_yaml(&kubeconfig).unwrap()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { manager.run_until(stop.cancelled_owned()).await }
    });
    shell.run("mica project create late --org umbrella");
    for project in ["web", "shop", "lab", "late"] {
        shell.run(&format!("mica project kubeconfig {project} -f {project}.kubeconfig"));
        let look = format!(
            "kubectl --kubeconfig {project}.kubeconfig get configmap welcome -o jsonpath={{.data.project}} 2>/dev/null || true"
        );
        until(|| shell.run(&look) == project, &format!("{project} is welcome")).await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();

    let yaml = blocks(&text, "yaml");
    std::fs::write(shell.home.path().join("suspension.yaml"), &yaml[0]).unwrap();
    let (before, last) = refused(suspend);
    shell.run(&before);
    let refusal = format!("! {{ {}; }}", last.split('#').next().unwrap().trim());
    until(
        || {
            let ran = shell.run(&format!("{refusal} || true"));
            ran.contains("is suspended")
        },
        "the project is suspended",
    )
    .await;
    shell.run(resume);
}

async fn until(is_so: impl Fn() -> bool, what: &str) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
        "never so: {what}"
    );
}
