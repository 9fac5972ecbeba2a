//! Files of one volume that would lie on or in each other.

use std::collections::HashMap;

use serde_json::Value;

use super::warn::MAX_WARNINGS;
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
}

/// What is said of the volumes of a pod or a template.
pub fn overlap_warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in object::list(spec, &["volumes"]) {
        let of = |field| present(volume, &[field]);
        if let Some(map) = of("configMap") {
            let what = format!("ConfigMap {}", quote(object::string(map, &["name"])));
            warn(volume, &what, items(map, ""), &mut Seen::default(), &mut warnings);
        }
        if let Some(secret) = of("secret") {
            let what = format!("Secret {}", quote(object::string(secret, &["secretName"])));
            warn(volume, &what, items(secret, ""), &mut Seen::default(), &mut warnings);
        }
        if let Some(downward) = of("downwardAPI") {
            warn(
                volume,
                "DownwardAPI",
                items(downward, ""),
                &mut Seen::default(),
                &mut warnings,
            );
        }
        let mut seen = Seen::default();
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

/// Files that were seen, by the parts of their paths: what overlaps is found without looking at all of them.
#[derive(Default)]
struct Seen {
    files: Vec<File>,
    children: HashMap<(usize, String), usize>,
    /// Which files are at a place or below it, and which are at it.
    places: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Seen {
    /// The first files, at most `most`, that are on, in or around this one, which is then seen as well.
    fn meet(&mut self, file: File, most: usize) -> (&File, Vec<&File>) {
        let number = self.files.len();
        let mut met: Vec<usize> = Vec::new();
        if !file.path.is_empty() {
            let mut place = 0;
            let mut parts = file.path.split('/').peekable();
            while let Some(part) = parts.next() {
                let next = self.places.len() + 1;
                place = *self.children.entry((place, part.to_owned())).or_insert(next);
                if place == next {
                    self.places.push(<_>::default());
                }
                let (below, here) = &mut self.places[place - 1];
                let is_last = parts.peek().is_none();
                met.extend(if is_last { &*below } else { &*here }.iter().take(most));
                below.push(number);
                if is_last {
                    here.push(number);
                }
            }
        }
        met.sort_unstable();
        met.truncate(most);
        self.files.push(file);
        (
            &self.files[number],
            met.into_iter().map(|other| &self.files[other]).collect(),
        )
    }
}

/// Warns of files that overlap with those that were seen before, and puts them there.
fn warn(volume: &Value, what: &str, files: Vec<File>, seen: &mut Seen, warnings: &mut Vec<String>) {
    let name = quote(object::string(volume, &["name"]));
    for file in files {
        let left = MAX_WARNINGS.saturating_sub(warnings.len());
        if left == 0 {
            return;
        }
        let (file, met) = seen.meet(file, left);
        let file = file.shown();
        warnings.extend(met.iter().map(|other| {
            let other = other.shown();
            format!("volume {name} ({what}): overlapping paths: {file} with {other}")
        }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn warnings(paths: &[String]) -> Vec<String> {
        let items: Vec<Value> = paths.iter().map(|path| json!({"key": "k", "path": path})).collect();
        overlap_warnings(&json!({"volumes": [{"name": "v", "configMap": {"name": "c", "items": items}}]}))
    }

    #[test]
    fn files_overlap_with_those_on_in_and_around_them_in_their_order() {
        let paths = ["a/b", "ab", "a", "a//c", "", "a/b/c/", "a/b"].map(str::to_owned);
        let told: Vec<String> = warnings(&paths)
            .iter()
            .map(|text| text.replace(r#"volume "v" (ConfigMap "c"): overlapping paths: "#, ""))
            .collect();
        let wanted = [
            r#""a" with "a/b""#,
            r#""a//c" with "a""#,
            r#""a/b/c" with "a/b""#,
            r#""a/b/c" with "a""#,
            r#""a/b" with "a/b""#,
            r#""a/b" with "a""#,
            r#""a/b" with "a/b/c""#,
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_hundred_thousand_files_are_looked_at_once_each() {
        let same = vec!["a".to_owned(); 100_000];
        assert_eq!(warnings(&same).len(), MAX_WARNINGS);
        let others: Vec<String> = (0..100_000).map(|i| format!("{i}")).collect();
        assert!(warnings(&others).is_empty());
        assert!(warnings(&["a/".repeat(500_000) + "b"]).is_empty());
    }
}
