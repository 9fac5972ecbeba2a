//! What the largest bodies that a server takes may cost in memory, whatever is in them.
//!
//! Each case runs in a process of its own, this test again under another name, whose peak is read when it ends.

use std::process::Command;

/// The largest request body.
const BODY: usize = 3 << 20;
/// What reading one may take at most beyond a process that reads nothing, in KiB. A parsed body takes some fifty times its
/// bytes at worst (lists of empty objects); a decoder without bounds would take gigabytes for some of these.
const MOST_KIB: u64 = 700 * 1024;
const CASE: &str = "MICA_MEMORY_CASE";

/// Target and input of each case.
fn cases() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let fill = |start: &str, unit: &str, end: &str| {
        let room = BODY - start.len() - end.len();
        format!("{start}{}{end}", unit.repeat(room / unit.len())).into_bytes()
    };
    let mut bomb = r#"a: &a ["l","l","l","l","l","l","l","l","l"]"#.to_owned();
    for pair in ["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"] {
        let (before, word) = pair.split_at(1);
        bomb += &format!("\n{word}: &{word} [{}]", vec![format!("*{before}"); 9].join(","));
    }
    let doubling: Vec<String> = (0..30)
        .map(|at| format!(r#"{{"op":"copy","from":"","path":"/x{at}"}}"#))
        .collect();
    let mut containers = b"v1 Pod\n".to_vec();
    // The spec, and in it empty containers only.
    let items = [0x12, 0x00].repeat(BODY / 2 - 16);
    containers.push(0x12);
    let mut length = items.len();
    while length > 0x7f {
        containers.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    containers.push(length as u8);
    containers.extend(items);
    vec![
        ("nothing", "json", b"v1 Pod\n{}".to_vec()),
        ("aliases of aliases", "yaml", bomb.into_bytes()),
        ("a long list in YAML", "yaml", fill("", "- a\n", "")),
        ("brackets without end", "yaml", fill("", "[", "")),
        ("brackets without end in JSON", "json", fill("v1 Pod\n", "[", "")),
        ("empty objects", "json", fill("v1 Pod\n[", "{},", "{}]")),
        (
            "empty containers",
            "json",
            fill("v1 Pod\n{\"spec\":{\"containers\":[", "{},", "{}]}}"),
        ),
        ("empty containers in protobuf", "protobuf", containers),
        (
            "copies of copies",
            "json_patch",
            format!("{{\"a\":1}}\n%%\n[{}]", doubling.join(",")).into_bytes(),
        ),
        (
            "members to merge",
            "merge_patch",
            fill("{\"a\":1}\n%%\n{\"b\":[", "{\"c\":1},", "{}]}"),
        ),
        (
            "one field owned again and again",
            "fields_v1",
            fill("{\"f:a\":{", "\"f:b\":{},", "\"f:b\":{}}}"),
        ),
        (
            "doubling in CEL",
            "cel",
            b"[[[1,2]].map(v, v + v)[0]].map(v, v + v)[0].map(v, [v, v, v, v]).map(v, [v, v, v, v]).map(v, [v, v])"
                .to_vec(),
        ),
    ]
}

#[test]
#[ignore = "the test below runs it, in a process of its own"]
fn one_case() {
    let name = std::env::var(CASE).expect("the test below says which");
    let (_, target, input) = cases().into_iter().find(|case| case.0 == name).expect("a case");
    let target = mica_fuzz::TARGETS
        .iter()
        .find(|known| known.name == target)
        .expect("a target");
    (target.run)(&input);
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    println!("{peak}");
}

fn peak_kib(name: &str) -> u64 {
    let this = std::env::current_exe().expect("this test's own path");
    let run = Command::new(this)
        .args(["--exact", "one_case", "--ignored", "--nocapture"])
        .env(CASE, name)
        .output()
        .expect("the child runs");
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{name}: {output}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let peak = output.lines().find_map(|line| line.trim().strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {output}"))
}

#[test]
fn no_body_takes_memory_without_bound() {
    let nothing = peak_kib("nothing");
    let mut broken = Vec::new();
    for (name, ..) in &cases()[1..] {
        let taken = peak_kib(name).saturating_sub(nothing);
        println!("{taken:>8} KiB  {name}");
        if taken > MOST_KIB {
            broken.push((*name, taken));
        }
    }
    assert_eq!(broken, [], "KiB taken, of {MOST_KIB}");
}
