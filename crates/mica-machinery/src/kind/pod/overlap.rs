//! Files of one volume that would lie on or in each other.

use serde_json::Value;

use crate::field::quote;
use crate::kind::check::present;
use crate::object;

/// A file of a volume, and where it comes from if the volume has several sources.
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self {
            path: path.trim_end_matches('/').to_owned(),
            source: source.to_owned(),
        }
    }

    fn shown(&self) -> String {
        let path = quote(&self.path);
        match self.source.as_str() {
            "" => path,
            source => format!("{path} ({source})"),
        }
    }

    fn overlaps(&self, other: &File) -> bool {
        let within = |a: &File, b: &File| format!("{}/", a.path).starts_with(&format!("{}/", b.path));
        !self.path.is_empty() && !other.path.is_empty() && (within(self, other) || within(other, self))
    }
}

/// What is said of the volumes of a pod or a template.
pub fn overlap_warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in object::list(spec, &["volumes"]) {
        let of = |field| present(volume, &[field]);
        if let Some(map) = of("configMap") {
            let what = format!("ConfigMap {}", quote(object::string(map, &["name"])));
            warn(volume, &what, items(map, ""), &mut Vec::new(), &mut warnings);
        }
        if let Some(secret) = of("secret") {
            let what = format!("Secret {}", quote(object::string(secret, &["secretName"])));
            warn(volume, &what, items(secret, ""), &mut Vec::new(), &mut warnings);
        }
        if let Some(downward) = of("downwardAPI") {
            warn(
                volume,
                "DownwardAPI",
                items(downward, ""),
                &mut Vec::new(),
                &mut warnings,
            );
        }
        let mut seen = Vec::new();
        for source in object::list(volume, &["projected", "sources"]) {
            if source.as_object().is_some_and(|all| all.values().all(Value::is_null)) {
                let name = quote(object::string(volume, &["name"]));
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
            }
            warn(volume, "Projected", projected(source), &mut seen, &mut warnings);
        }
    }
    warnings
}

/// Warns of files that overlap with those that were seen before, and puts them there.
fn warn(volume: &Value, what: &str, files: Vec<File>, seen: &mut Vec<File>, warnings: &mut Vec<String>) {
    let name = quote(object::string(volume, &["name"]));
    for file in files {
        for other in seen.iter().filter(|other| file.overlaps(other)) {
            let (file, other) = (file.shown(), other.shown());
            warnings.push(format!(
                "volume {name} ({what}): overlapping paths: {file} with {other}"
            ));
        }
        seen.push(file);
    }
}

fn items(holder: &Value, source: &str) -> Vec<File> {
    let all = object::list(holder, &["items"]).iter();
    all.map(|item| File::new(object::string(item, &["path"]), source))
        .collect()
}

/// The files of a source. The first that names any counts, as validation lets there be one only.
fn projected(source: &Value) -> Vec<File> {
    let of = |field| present(source, &[field]);
    let with_items = |field| of(field).filter(|holder| present(holder, &["items"]).is_some());
    let name = |holder| quote(object::string(holder, &["name"]));
    if let Some(map) = with_items("configMap") {
        return items(map, &format!("ConfigMap {}", name(map)));
    }
    if let Some(secret) = with_items("secret") {
        return items(secret, &format!("Secret {}", name(secret)));
    }
    if let Some(downward) = with_items("downwardAPI") {
        return items(downward, "DownwardAPI");
    }
    if let Some(token) = of("serviceAccountToken") {
        return vec![File::new(object::string(token, &["path"]), "ServiceAccountToken")];
    }
    if let Some(bundle) = of("clusterTrustBundle") {
        let field = if present(bundle, &["name"]).is_some() {
            "name"
        } else {
            "signerName"
        };
        let source = format!("ClusterTrustBundle {}", quote(object::string(bundle, &[field])));
        return vec![File::new(object::string(bundle, &["path"]), &source)];
    }
    let certificate = of("podCertificate").into_iter();
    certificate
        .flat_map(|certificate| {
            const PATHS: [(&str, &str); 3] = [
                ("certificateChainPath", "PodCertificate chain"),
                ("keyPath", "PodCertificate key"),
                ("credentialBundlePath", "PodCertificate credential bundle"),
            ];
            let all = PATHS
                .iter()
                .map(|(field, source)| File::new(object::string(certificate, &[field]), source));
            all.filter(|file| !file.path.is_empty()).collect::<Vec<_>>()
        })
        .collect()
}
