//! Which of the built-in plugins run, by upstream's names, and how those that can be configured are.

use std::path::Path;

use mica_machinery::admission::security::Configuration;
use mica_machinery::field::quote;

/// Every plugin that upstream has, in its order.
const ALL: [&str; 41] = [
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    "AlwaysDeny",
];

/// A plugin that can be switched here. All others run if they are on by default, and do not run if not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plugin {
    PodSecurity,
    OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize,
    LimitRanger,
    DefaultIngressClass,
}

const SWITCHES: [(&str, Plugin); 5] = [
    ("PodSecurity", Plugin::PodSecurity),
    (
        "OwnerReferencesPermissionEnforcement",
        Plugin::OwnerReferencesPermissionEnforcement,
    ),
    ("PersistentVolumeClaimResize", Plugin::PersistentVolumeClaimResize),
    ("LimitRanger", Plugin::LimitRanger),
    ("DefaultIngressClass", Plugin::DefaultIngressClass),
];

/// The plugins that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugins {
    on: Vec<Plugin>,
    pub(super) security: Configuration,
}

impl Default for Plugins {
    fn default() -> Self {
        let off = [Plugin::OwnerReferencesPermissionEnforcement];
        let on = SWITCHES.iter().map(|(_, plugin)| *plugin);
        Self {
            on: on.filter(|plugin| !off.contains(plugin)).collect(),
            security: Configuration::default(),
        }
    }
}

impl Plugins {
    /// Those of the defaults and of the first list, without those of the second. Problems are told in upstream's words.
    pub fn new(enable: &[&str], disable: &[&str]) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        for (flag, names) in [("enable", enable), ("disable", disable)] {
            let unknown = names.iter().filter(|name| !ALL.contains(name));
            problems.extend(unknown.map(|name| format!("{flag}-admission-plugins plugin {} is unknown", quote(name))));
        }
        let mut both: Vec<&str> = enable.iter().copied().filter(|name| disable.contains(name)).collect();
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            let both = both.join(" ");
            problems.push(format!(
                "[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut plugins = Self::default();
        for (name, plugin) in SWITCHES {
            plugins.on.retain(|one| *one != plugin || !disable.contains(&name));
            if enable.contains(&name) && !plugins.is_on(plugin) {
                plugins.on.push(plugin);
            }
        }
        Ok(plugins)
    }

    /// Names that are asked for and that nothing here does, or cannot be turned off.
    pub fn without_effect<'n>(enable: &[&'n str], disable: &[&'n str]) -> Vec<&'n str> {
        const STAYING_OFF: [&str; 14] = [
            "NamespaceAutoProvision",
            "NamespaceExists",
            "LimitPodHardAntiAffinityTopology",
            "NodeRestriction",
            "AlwaysPullImages",
            "ImagePolicyWebhook",
            "PodNodeSelector",
            "PodTolerationRestriction",
            "EventRateLimit",
            "ExtendedResourceToleration",
            "DenyServiceExternalIPs",
            "AlwaysDeny",
            "NodeDeclaredFeatureValidator",
            "PodGroupWorkloadExists",
        ];
        let switched = |name: &str| name == "ServiceAccount" || SWITCHES.iter().any(|(one, _)| *one == name);
        let enabled = enable.iter().filter(|name| STAYING_OFF.contains(name));
        let disabled = disable
            .iter()
            .filter(|name| !STAYING_OFF.contains(name) && !switched(name) && **name != "AlwaysAdmit");
        enabled.chain(disabled).copied().collect()
    }

    /// The same with what an `AdmissionConfiguration` says.
    pub fn configured(mut self, path: &Path) -> Result<Self, String> {
        let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read(path).map_err(|error| named(path, error))?;
        let home = path.parent().unwrap_or(Path::new("."));
        // As upstream: what is not absolute is beside the file that names it.
        let read = |file: &str| std::fs::read(home.join(file)).map_err(|error| named(&home.join(file), error));
        self.security = Configuration::of_admission(&text, &read).map_err(|error| error.to_string())?;
        Ok(self)
    }

    pub fn is_on(&self, plugin: Plugin) -> bool {
        self.on.contains(&plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_upstream_checks_them() {
        let problems = Plugins::new(&["PodSecurity", "Nothing"], &["PodSecurity", "Other"]).unwrap_err();
        assert_eq!(
            problems,
            [
                "enable-admission-plugins plugin \"Nothing\" is unknown",
                "disable-admission-plugins plugin \"Other\" is unknown",
                "[PodSecurity] in enable-admission-plugins and disable-admission-plugins overlapped",
            ]
        );
        let plugins = Plugins::new(&["OwnerReferencesPermissionEnforcement"], &["PodSecurity"]).unwrap();
        assert!(plugins.is_on(Plugin::OwnerReferencesPermissionEnforcement));
        assert!(!plugins.is_on(Plugin::PodSecurity));
        assert!(Plugins::default().is_on(Plugin::PodSecurity));
        assert_eq!(
            Plugins::without_effect(&["NodeRestriction", "PodSecurity"], &["Priority", "ServiceAccount"]),
            ["NodeRestriction", "Priority"]
        );
    }
}
