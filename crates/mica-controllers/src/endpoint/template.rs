//! URLs and hosts with places to be filled in.

/// What is filled in.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// Of the ControlPlane.
    pub name: &'a str,
    pub cluster_path: &'a str,
    /// The base address of the server that its plane is on.
    pub server: &'a str,
}

/// A URL: `{name}`, `{clusterPath}` and `{server}` are filled in.
pub fn url(template: &str, filling: &Filling<'_>) -> String {
    template
        .replace("{name}", filling.name)
        .replace("{clusterPath}", filling.cluster_path)
        .replace("{server}", filling.server.trim_end_matches('/'))
}

/// The host of a route: `{{.Name}}` is the ControlPlane's name.
pub fn host(template: &str, name: &str) -> String {
    template.replace("{{.Name}}", name).replace("{{ .Name }}", name)
}

/// A place in a text that nothing fills in.
pub fn unknown_place(filled: &str) -> Option<&str> {
    let start = filled.find(['{', '}'])?;
    let end = filled[start..].find('}').map_or(filled.len(), |at| start + at + 1);
    Some(&filled[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_and_unknown_ones_are_found() {
        let filling = Filling {
            name: "n",
            cluster_path: "p",
            server: "https://mica.example:6440/",
        };
        assert_eq!(
            url("https://{name}.example/{clusterPath}", &filling),
            "https://n.example/p"
        );
        assert_eq!(
            url("{server}/clusters/{clusterPath}/control-plane", &filling),
            "https://mica.example:6440/clusters/p/control-plane"
        );
        assert_eq!(host("{{.Name}}.a.example", "n"), "n.a.example");
        assert_eq!(
            unknown_place(&url("https://{tenant}.example", &filling)),
            Some("{tenant}")
        );
        assert_eq!(unknown_place("https://a.example"), None);
        assert_eq!(unknown_place("a}b"), Some("}"));
    }
}
