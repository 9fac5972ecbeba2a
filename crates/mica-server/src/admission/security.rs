//! PodSecurity: pods, what makes pods, and namespaces, against the standards that namespaces ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use mica_machinery::admission::security::{self, Configuration, Level, Policy, Standard, details, reasons, violations};
use mica_machinery::admission::{Objects, Operation};
use mica_machinery::field::{aggregate, quote};
use mica_machinery::object;
use serde_json::Value;
use tokio::time::Instant;

use super::gate::Gate;
use super::switch::Plugin;
use crate::error::ApiError;
use crate::registry::{Extent, Scan, stored_value};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// Pods of a namespace that are looked at when it asks for more, and for how long. Upstream's numbers.
const MAX_PODS: usize = 3000;
const PATIENCE: Duration = Duration::from_secs(1);

/// Subresources of pods in which no pod is.
const OTHER_PARTS: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// Whether a standard is more than told of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enforced {
    Yes,
    /// Of what makes pods: they are judged when they come.
    No,
}

impl Gate<'_> {
    pub(super) async fn check_security(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let plugins = self.registry.plugins();
        let asked = matches!(self.operation, Operation::Create | Operation::Update);
        if !asked || !plugins.is_on(Plugin::PodSecurity) {
            return Ok(());
        }
        let (target, configuration) = (&self.grant.target, &plugins.security);
        let part = target.subresource.as_str();
        let (group, plural) = (target.served.group(), target.served.plural());
        if target.served.is_namespaces() {
            return match part {
                "" => self.check_namespace(configuration, new, old).await,
                _ => Ok(()),
            };
        }
        let is_pod = (group, plural) == ("", "pods");
        if (is_pod && OTHER_PARTS.contains(&part)) || (!is_pod && !part.is_empty()) {
            return Ok(());
        }
        let Some((metadata, spec)) = security::template(group, plural, new) else {
            return Ok(());
        };
        if self.is_exempt(configuration) {
            return Ok(());
        }
        let objects = Objects { object: Some(new), old };
        let Some(namespace) = self.namespace(objects).await? else {
            return Ok(());
        };
        let (policy, errors) = Policy::of(namespace, configuration.defaults);
        if errors.is_empty() && policy.is_privileged() {
            if is_pod {
                self.note("enforce-policy", Standard::PRIVILEGED.to_string());
            }
            return Ok(());
        }
        if is_pod && old.is_some_and(|old| !security::is_significant(new, old)) {
            return Ok(());
        }
        let class = object::string(spec, &["runtimeClassName"]);
        if !class.is_empty() && configuration.runtime_classes.iter().any(|one| one == class) {
            self.note("exempt", "runtimeClass".to_owned());
            return Ok(());
        }
        if !errors.is_empty() {
            self.note("error", format!("Failed to parse policy: {}", aggregate(&errors)));
        }
        let enforced = if is_pod { Enforced::Yes } else { Enforced::No };
        self.judge_pod(policy, enforced, new, (metadata, spec))
    }

    /// Whether nothing is asked of a request, because of where it is or whose it is.
    fn is_exempt(&self, configuration: &Configuration) -> bool {
        let has = |list: &[String], name: &str| !name.is_empty() && list.iter().any(|one| one == name);
        let why = if has(&configuration.namespaces, self.namespace_name()) {
            "namespace"
        } else if has(&configuration.users, &self.grant.user.name) {
            "user"
        } else {
            return false;
        };
        self.note("exempt", why.to_owned());
        true
    }

    fn note(&self, key: &str, value: String) {
        self.annotate(format!("{PREFIX}{key}"), value);
    }

    fn judge_pod(
        &self,
        policy: Policy,
        enforced: Enforced,
        object: &Value,
        (metadata, spec): (&Value, &Value),
    ) -> Result<(), ApiError> {
        let told = |standard: Standard| {
            let found = violations(standard, metadata, spec);
            (!found.is_empty()).then(|| {
                format!(
                    "violate PodSecurity {}: {}",
                    quote(&standard.to_string()),
                    details(&found)
                )
            })
        };
        let mut refusal = None;
        if enforced == Enforced::Yes {
            self.note("enforce-policy", policy.enforce.to_string());
            refusal = told(policy.enforce).map(|why| why.replacen("violate", "violates", 1));
        }
        if let Some(why) = told(policy.audit) {
            self.note("audit-violations", format!("would {why}"));
        }
        match refusal {
            Some(why) => Err(self.refuse(object, &why)),
            None => {
                if let Some(why) = told(policy.warn) {
                    self.warn(format!("would {why}"));
                }
                Ok(())
            }
        }
    }

    /// A namespace's labels must make sense, and who asks for more is told of pods that are not it.
    async fn check_namespace(
        &self,
        configuration: &Configuration,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (policy, errors) = Policy::of(new, configuration.defaults);
        let before = old.map(|old| Policy::of(old, configuration.defaults));
        let same = before.as_ref().is_some_and(|(_, old)| *old == errors);
        if !errors.is_empty() && !same {
            let served = &self.grant.target.served;
            return Err(ApiError::invalid(
                served.group(),
                served.kind(),
                object::name(new),
                &errors,
            ));
        }
        let exempt = configuration.namespaces.iter().any(|one| one == object::name(new));
        if exempt {
            self.warnings_of(policy.ignored(new, &configuration.defaults));
            return Ok(());
        }
        let Some((before, _)) = before else { return Ok(()) };
        let (now, then) = (policy.enforce, before.enforce);
        let relaxed = now.version == then.version && now.level <= then.level;
        if now == then || now.level == Level::Privileged || relaxed {
            return Ok(());
        }
        let warnings = self.violators(object::name(new), now, configuration).await?;
        self.warnings_of(warnings);
        Ok(())
    }

    fn warnings_of(&self, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            self.warn(warning);
        }
    }

    /// What is told of pods that are there and violate a standard.
    async fn violators(
        &self,
        namespace: &str,
        standard: Standard,
        configuration: &Configuration,
    ) -> Result<Vec<String>, ApiError> {
        let deadline = Instant::now() + PATIENCE;
        let pods = self.pods_by_owner(namespace, configuration).await?;
        let total = pods.len();
        let (mut checked, mut found) = (0, BTreeMap::<String, (String, usize)>::new());
        for pod in pods.iter().take(MAX_PODS) {
            checked += 1;
            let bad = violations(standard, &pod["metadata"], &pod["spec"]);
            if !bad.is_empty() {
                let name = object::name(pod);
                let (first, count) = found.entry(reasons(&bad)).or_insert_with(|| (name.to_owned(), 0));
                if name < first.as_str() {
                    name.clone_into(first);
                }
                *count += 1;
            }
            if Instant::now() > deadline {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {} violate the new PodSecurity enforce level {}",
                quote(namespace),
                quote(&standard.to_string())
            ));
        }
        let mut each: Vec<String> = found
            .into_iter()
            .map(|(reasons, (pod, count))| match count {
                1 => format!("{pod}: {reasons}"),
                2 => format!("{pod} (and 1 other pod): {reasons}"),
                count => format!("{pod} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        each.sort();
        warnings.extend(each);
        Ok(warnings)
    }

    /// The pods of a namespace, further ones of one controller last: they are mostly alike.
    async fn pods_by_owner(&self, namespace: &str, configuration: &Configuration) -> Result<Vec<Value>, ApiError> {
        let plane = &self.grant.target.plane;
        let Some(served) = plane.scheme.find("", "v1", "pods").cloned() else {
            return Ok(Vec::new());
        };
        let extent = Extent::Namespace(namespace.to_owned());
        let (registry, of) = (self.registry.clone(), served.clone());
        let mut scan = Scan::of_plane(registry, plane.clone(), of, &extent, None, None);
        let (mut first, mut more, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((_, stored)) = scan.next().await? {
            let pod = stored_value(&served, &stored)?;
            let class = object::string(&pod, &["spec", "runtimeClassName"]);
            if !class.is_empty() && configuration.runtime_classes.iter().any(|one| one == class) {
                continue;
            }
            let owners = object::list(&pod, &["metadata", "ownerReferences"]);
            let controller = owners.iter().find(|owner| owner["controller"] == true);
            let uid = controller.map(|owner| object::string(owner, &["uid"]).to_owned());
            match uid {
                Some(uid) if seen.contains(&uid) => more.push(pod),
                uid => {
                    seen.extend(uid);
                    first.push(pod);
                }
            }
        }
        first.append(&mut more);
        Ok(first)
    }
}
