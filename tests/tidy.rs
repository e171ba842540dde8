//! Rules of the code base that a machine can check. A rule that only stands in prose drifts.
//!
//! Each rule is a function of one file's path and text that returns what it found, and each has a test that shows it a
//! violation: a rule that cannot fail checks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file of the repository: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

/// What a rule objects to, as `line: sentence`.
type Findings = Vec<String>;

// ---- The rules ------------------------------------------------------------------------------------------------------

/// The groups of `src/lib.rs` are the layers, lowest first. A module imports only from its own layer and those below.
fn layers_import_downward(layers: &Layers, path: &str, text: &str) -> Findings {
    let Some(module) = top_module(path) else { return Vec::new() };
    let Some(&own) = layers.get(module) else {
        return vec![format!("1: module `{module}` is not declared in src/lib.rs")];
    };
    let upward = |(line, import): (usize, String)| {
        let other = *layers.get(import.as_str())?;
        (other > own).then(|| format!("{line}: `{module}` imports `{import}`, which is above it"))
    };
    crate_imports(text).into_iter().filter_map(upward).collect()
}

/// Modules of one layer may use each other, but not in a circle, and the client may not reach into the server.
fn siblings_do_not_import_in_circles(layers: &Layers, files: &[File]) -> Findings {
    let mut imports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        if let Some(module) = top_module(&file.path) {
            let found = crate_imports(&file.text).into_iter().map(|(_, import)| import);
            imports.entry(module).or_default().extend(found);
        }
    }
    let mut findings = Vec::new();
    for (module, others) in &imports {
        for other in others.iter().filter(|other| module < &other.as_str()) {
            let back = imports.get(other.as_str()).is_some_and(|back| back.contains(*module));
            if back && layers.get(module) == layers.get(other.as_str()) {
                findings.push(format!("`{module}` and `{other}` import each other"));
            }
        }
    }
    let server_side = ["storage", "quorum", "replication", "broker", "server", "admin", "node"];
    for import in imports.get("client").into_iter().flatten() {
        if server_side.contains(&import.as_str()) {
            findings.push(format!("`client` imports `{import}`: a client knows only the protocol"));
        }
    }
    findings
}

/// Every file says what it owns, in at most 25 lines besides code.
fn module_docs(_: &str, text: &str) -> Findings {
    let mut is_code = false;
    let mut is_prose = |line: &&str| {
        let is_fence = line.trim_start_matches("//!").trim().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    let doc = text.lines().take_while(|line| line.starts_with("//!"));
    let doc = doc.filter(|line| is_prose(line)).collect::<Vec<_>>();
    match doc.len() {
        0 => vec!["1: no module doc (`//!`) at the top".to_owned()],
        1..=25
            if doc[0].trim_start_matches("//!").trim().len() < 10
                || doc[0].contains("(placeholder)") =>
        {
            vec!["1: the module doc says nothing".to_owned()]
        }
        1..=25 => Vec::new(),
        lines => vec![format!("1: a module doc of {lines} lines; 25 are enough")],
    }
}

/// Calls that have one right place, with that place. Tests may print, and may build what they test from anything.
fn banned_calls(path: &str, text: &str) -> Findings {
    const RULES: &[(&str, &[&str], &str)] = &[
        ("openraft", &["src/quorum/"], "only quorum/ names openraft"),
        ("sled", &["src/quorum/"], "only quorum/ names sled"),
        ("bincode", &["src/codec.rs"], "only codec.rs names bincode"),
        ("println!", &["src/cli/", "src/main.rs"], "only the CLI prints; others use tracing"),
        ("print!", &["src/cli/", "src/main.rs"], "only the CLI prints; others use tracing"),
        ("eprintln!", &["src/cli/", "src/main.rs"], "only the CLI prints; others use tracing"),
        ("SystemTime", &["src/types/time.rs"], "types::time::wall_ms, or an argument"),
        ("unbounded_channel", &[], "every queue has a bound"),
        ("Box<dyn Error", &[], "each module has its own Error"),
        ("Box<dyn std::error::Error", &[], "each module has its own Error"),
        ("anyhow", &[], "each module has its own Error"),
    ];
    if !path.starts_with("src/") || is_test(path) {
        return Vec::new();
    }
    let code = production(text);
    let mut findings = Vec::new();
    for (word, places, advice) in RULES {
        if !places.iter().any(|place| path.starts_with(place)) {
            let found = lines_with_word(&code, word);
            findings.extend(found.map(|line| format!("{line}: `{word}`: {advice}")));
        }
    }
    findings
}

/// Decisions are functions of their arguments (ARCHITECTURE.md, INV-PURE-1).
fn pure_layers(path: &str, text: &str) -> Findings {
    const PURE: &[&str] = &["src/metadata/", "src/controller/", "src/replication/"];
    const IMPURE: &[(&str, &str)] = &[
        ("tokio", "no runtime"),
        ("HashMap", "its iteration order differs from node to node; BTreeMap or OrdMap"),
        ("HashSet", "its iteration order differs from node to node; BTreeSet or OrdSet"),
        ("std::fs", "no I/O"),
        ("std::net", "no I/O"),
        ("std::thread", "no threads"),
        ("getrandom", "no entropy; a seed is an argument"),
        ("random::uuid", "no entropy; ids are arguments"),
        ("random::seed", "no entropy; a seed is an argument"),
        ("time::now", "no clock; time is an argument"),
        ("time::wall_ms", "no clock; time is an argument"),
        ("f32", "no floats: they need not round alike everywhere"),
        ("f64", "no floats: they need not round alike everywhere"),
    ];
    if !PURE.iter().any(|pure| path.starts_with(pure)) || is_test(path) {
        return Vec::new();
    }
    let code = production(text);
    let find = |(word, advice): &(&str, &str)| {
        let (word, advice) = (word.to_string(), advice.to_string());
        lines_with_word(&code, &word)
            .map(|line| format!("{line}: `{word}` in a pure layer: {advice}"))
            .collect::<Vec<_>>()
    };
    IMPURE.iter().flat_map(find).collect()
}

/// Promises not kept and tests not run.
fn leftovers(_: &str, text: &str) -> Findings {
    const WORDS: &[&str] = &[
        concat!("to", "do!"),
        concat!("unimple", "mented!"),
        concat!("db", "g!"),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("XX", "X"),
        concat!("#[ig", "nore"),
    ];
    let found = |word: &'static str| {
        lines_with_word(text, word).map(move |line| format!("{line}: leftover `{word}`"))
    };
    WORDS.iter().flat_map(|word| found(word)).collect()
}

/// What is true only on the machine where it was written.
fn machine_traces(_: &str, text: &str) -> Findings {
    const TRACES: &[&str] = &[
        concat!("/wo", "rk/"),
        concat!("/tmp/bash", "_jobs"),
        concat!("/ro", "ot/"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("pypi", ".org"),
        concat!("files.python", "hosted"),
        concat!("registry.npm", "js"),
        concat!("repo.ma", "ven"),
        concat!("repo1.ma", "ven"),
        concat!("proxy.gol", "ang"),
        concat!("deb.deb", "ian"),
    ];
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for trace in TRACES.iter().filter(|trace| line.contains(**trace)) {
            findings.push(format!("{}: `{trace}` is a trace of one machine", number + 1));
        }
    }
    findings
}

/// A file that nobody can hold in the head has a seam somewhere.
fn file_sizes(_: &str, text: &str) -> Findings {
    const LINES_MAX: usize = 700;
    let lines = text.lines().count();
    if lines > LINES_MAX { vec![format!("1: {lines} lines; split it by seam")] } else { Vec::new() }
}

/// Invariants are numbered once, in INVARIANTS.md, and each number is cited where it is asserted or checked.
fn invariant_numbers(document: &str, files: &[File]) -> Findings {
    let defined: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("**INV-"))
        .filter_map(|rest| Some(format!("INV-{}", rest.split_once("**")?.0)))
        .collect();
    let mut findings = Vec::new();
    let mut cited = BTreeSet::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            for name in invariant_names(line) {
                if !defined.contains(&name) {
                    let at = format!("{}:{}", file.path, number + 1);
                    findings.push(format!("{at}: {name} is not in INVARIANTS.md"));
                }
                cited.insert(name);
            }
        }
    }
    let unused = defined.difference(&cited);
    findings.extend(unused.map(|name| format!("{name} is cited by no assert and no test")));
    findings
}

/// Dependencies are pinned exactly, and each has its line in the decision about them.
fn dependencies(manifest: &str, decision: &str) -> Findings {
    let mut section = "";
    let mut findings = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && let Some((name, requirement)) = line.split_once(" = ")
        {
            if !requirement.contains("\"=") {
                findings.push(format!("`{name}` is not pinned"));
            }
            let names = |line: &str| lines_with_word(line, name).next().is_some();
            if !decision.lines().any(names) {
                findings.push(format!("`{name}` has no line in the decision"));
            }
        }
    }
    findings
}

// ---- Running them ---------------------------------------------------------------------------------------------------

#[test]
fn layers() {
    let layers = Layers::of(&read("src/lib.rs"));
    let files = rust_files(&["src"]);
    check(&files, |path, text| layers_import_downward(&layers, path, text));
    let findings = siblings_do_not_import_in_circles(&layers, &files);
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn every_file_has_a_module_doc() {
    check(&rust_files(&RUST_FOLDERS), module_docs);
}

#[test]
fn calls_stand_where_they_belong() {
    check(&rust_files(&["src"]), banned_calls);
}

#[test]
fn decisions_are_pure() {
    check(&rust_files(&["src"]), pure_layers);
}

#[test]
fn nothing_is_left_over() {
    check(&rust_files(&RUST_FOLDERS), leftovers);
}

#[test]
fn no_file_is_too_long() {
    check(&rust_files(&RUST_FOLDERS), file_sizes);
}

#[test]
fn nothing_names_a_machine() {
    let mut files = rust_files(&RUST_FOLDERS);
    files.extend(other_files());
    assert!(files.iter().any(|file| file.path == "Makefile"));
    check(&files, machine_traces);
}

#[test]
fn invariants_are_numbered_and_used() {
    let findings = invariant_numbers(&read("INVARIANTS.md"), &rust_files(&RUST_FOLDERS[..3]));
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn dependencies_are_pinned_and_explained() {
    let decision = read("docs/decisions/0001-dependencies.md");
    let findings = dependencies(&read("Cargo.toml"), &decision);
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

// ---- Each rule can fail ---------------------------------------------------------------------------------------------

#[test]
fn self_test_layers() {
    let layers =
        Layers::of("pub mod types;\n\npub mod codec;\npub mod record;\n\npub mod broker;\n");
    let check = |path, text| layers_import_downward(&layers, path, text).len();
    assert_eq!(check("src/codec.rs", "use crate::broker::Broker;"), 1);
    assert_eq!(check("src/codec.rs", "use crate::{types, broker::Broker};"), 1);
    assert_eq!(check("src/codec.rs", "fn f() { crate::broker::start() }"), 1);
    assert_eq!(check("src/codec.rs", "use crate::record::Batch; // crate::broker"), 0);
    assert_eq!(check("src/broker/a.rs", "use crate::types::Offset;"), 0);
    assert_eq!(check("src/unknown.rs", ""), 1);

    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let circle = |left: &str, right: &str| {
        let files = [file("src/codec.rs", left), file("src/record/mod.rs", right)];
        siblings_do_not_import_in_circles(&layers, &files).len()
    };
    assert_eq!(circle("use crate::record::A;", "use crate::codec::B;"), 1);
    assert_eq!(circle("use crate::record::A;", "use crate::types::B;"), 0);
    let client = [file("src/client/a.rs", "use crate::storage::PartitionLog;")];
    assert_eq!(siblings_do_not_import_in_circles(&layers, &client).len(), 1);
}

#[test]
fn self_test_file_rules() {
    assert_eq!(module_docs("a.rs", "use std::fs;\n").len(), 1);
    assert_eq!(module_docs("a.rs", "//! (placeholder)\n").len(), 1);
    assert_eq!(module_docs("a.rs", &"//! A line of text.\n".repeat(26)).len(), 1);
    assert_eq!(module_docs("a.rs", "//! Owns the thing.\n").len(), 0);
    let example = format!("//! Owns the thing.\n//! ```\n{}//! ```\n", "//! code();\n".repeat(30));
    assert_eq!(module_docs("a.rs", &example).len(), 0);

    assert_eq!(banned_calls("src/broker/a.rs", "fn f() { println!(\"x\") }").len(), 1);
    assert_eq!(banned_calls("src/broker/a.rs", "use openraft::Raft;").len(), 1);
    assert_eq!(banned_calls("src/quorum/a.rs", "use openraft::Raft;").len(), 0);
    assert_eq!(banned_calls("src/broker/a.rs", "let s = \"openraft\"; // openraft").len(), 0);
    assert_eq!(banned_calls("src/broker/a.rs", "#[cfg(test)]\nmod tests { println!(); }").len(), 0);
    assert_eq!(banned_calls("src/broker/a_test.rs", "fn f() { println!() }").len(), 0);
    assert_eq!(banned_calls("src/cli/a.rs", "fn f() { println!(\"x\") }").len(), 0);

    assert_eq!(pure_layers("src/controller/a.rs", "use std::collections::HashMap;").len(), 1);
    assert_eq!(pure_layers("src/controller/a.rs", "let x: f64 = y;").len(), 1);
    assert_eq!(pure_layers("src/broker/a.rs", "use std::collections::HashMap;").len(), 0);

    assert_eq!(leftovers("a.rs", concat!("fn f() { to", "do!() }")).len(), 1);
    assert_eq!(leftovers("a.rs", concat!("// FIX", "ME: later")).len(), 1);
    assert_eq!(leftovers("a.rs", "fn mastodon() {}").len(), 0);

    assert_eq!(machine_traces("a.md", concat!("see /wo", "rk/notes")).len(), 1);
    assert_eq!(file_sizes("a.rs", &"x\n".repeat(701)).len(), 1);
}

#[test]
fn self_test_invariants() {
    let cite = |text: &str| {
        let file = File { path: "src/a.rs".to_owned(), text: text.to_owned() };
        invariant_numbers(concat!("**INV", "-HW-1** The watermark only grows.\n"), &[file])
    };
    assert!(cite(concat!("assert!(true, \"INV", "-HW-1\");")).is_empty());
    assert_eq!(cite("").len(), 1, "defined, never cited");
    assert_eq!(cite(concat!("// INV", "-HW-1 and INV", "-HW-2")).len(), 1, "cited, never defined");
}

#[test]
fn self_test_dependencies() {
    let check = |manifest: &str| dependencies(manifest, "| known | for | why |").len();
    assert_eq!(check("[dependencies]\nknown = \"=1.0.0\"\n[lints]\nx = \"deny\""), 0);
    assert_eq!(check("[dependencies]\nknown = \"1\""), 1);
    assert_eq!(check("[dev-dependencies]\nunknown = { version = \"=1.0.0\" }"), 1);
}

#[test]
fn self_test_lexer() {
    let blank = |text| without_comments_and_strings(text);
    assert_eq!(blank("a // b\nc"), "a     \nc");
    assert_eq!(blank("a /* b /* c */ d */ e"), "a                   e");
    assert_eq!(blank(r#"a "b \" c" d"#), "a          d");
    assert_eq!(blank("a r#\"b \" c\"# d"), "a            d");
    assert_eq!(blank("fn f<'a>(x: &'a u8) { '\"' }"), "fn f<'a>(x: &'a u8) {     }");
    assert_eq!(crate_imports("use crate::{\n  a::{b, c},\n  d,\n};\ncrate::e::f()").len(), 3);
}

// ---- Reading the code -----------------------------------------------------------------------------------------------

const RUST_FOLDERS: [&str; 5] = ["src", "tests", "raft-tests", "examples", "benches"];

/// Module name to layer number.
struct Layers(BTreeMap<String, usize>);

impl Layers {
    fn of(lib: &str) -> Self {
        let mut layers = BTreeMap::new();
        let mut layer = 0;
        for line in lib.lines() {
            if line.is_empty() {
                layer += 1;
            } else if let Some(name) = line.strip_prefix("pub mod ") {
                layers.insert(name.trim_end_matches(';').to_owned(), layer);
            }
        }
        assert!(layers.len() > 3, "src/lib.rs declares the modules");
        Self(layers)
    }

    fn get(&self, module: &str) -> Option<&usize> {
        self.0.get(module)
    }
}

fn check(files: &[File], rule: impl Fn(&str, &str) -> Findings) {
    assert!(!files.is_empty(), "the rule looked at nothing");
    let report: Vec<String> = files
        .iter()
        .flat_map(|file| {
            rule(&file.path, &file.text).into_iter().map(|found| format!("{}:{found}", file.path))
        })
        .collect();
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rust_files(folders: &[&str]) -> Vec<File> {
    folders
        .iter()
        .flat_map(|folder| files_under(folder))
        .filter(|f| f.path.ends_with(".rs"))
        .collect()
}

/// Texts that are not Rust. The lock file names its registry by necessity.
fn other_files() -> Vec<File> {
    let root = [
        "Makefile",
        "README.md",
        "ARCHITECTURE.md",
        "INVARIANTS.md",
        "Cargo.toml",
        "deny.toml",
        ".ci/run",
    ];
    let mut files = files_under("docs");
    files.extend(root.map(|path| File { path: path.to_owned(), text: read(path) }));
    files
}

fn files_under(folder: &str) -> Vec<File> {
    let Ok(entries) = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.expect("a folder of the repository can be listed");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(files_under(&path));
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text });
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    files
}

/// `broker` for `src/broker/streams.rs`; `None` for the roots of the crate.
fn top_module(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("src/")?;
    let name = rest.split('/').next()?.trim_end_matches(".rs");
    (!["lib", "main"].contains(&name)).then_some(name)
}

/// Top-level modules named by `crate::a` and `crate::{a, b::{c, d}}`, each with its line.
fn crate_imports(text: &str) -> Vec<(usize, String)> {
    let code = without_comments_and_strings(text);
    let mut imports = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        if rest.starts_with('{') {
            let mut depth = 0;
            let mut item_starts = false;
            for (i, c) in rest.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
                if depth == 1 && matches!(c, '{' | ',') {
                    item_starts = true;
                } else if item_starts && !c.is_whitespace() {
                    imports.push((line, identifier(&rest[i..])));
                    item_starts = false;
                }
            }
        } else {
            imports.push((line, identifier(rest)));
        }
    }
    imports
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Files that hold nothing but tests and what tests need.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        let name = part.trim_end_matches(".rs");
        name.ends_with("_test") || ["testing", "fake", "tests"].contains(&name)
    })
}

/// What is not test code: everything before the test module, which stands last in a file.
fn production(text: &str) -> String {
    let code = without_comments_and_strings(text);
    let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    code[..end].to_owned()
}

/// Lines (from 1) that hold `word` and not merely a longer word around it.
fn lines_with_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().enumerate().filter_map(move |(number, line)| {
        line.match_indices(word)
            .any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + word.len()..].chars().next();
                let bounded_left = !word.starts_with(is_word) || !before.is_some_and(is_word);
                let bounded_right = !word.ends_with(is_word) || !after.is_some_and(is_word);
                bounded_left && bounded_right
            })
            .then_some(number + 1)
    })
}

/// `INV`, an area and a number, joined by dashes.
fn invariant_names(line: &str) -> Vec<String> {
    line.match_indices(concat!("INV", "-"))
        .filter_map(|(at, _)| {
            let rest = &line[at..];
            let is_part = |c: &char| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '-';
            let name: String = rest.chars().take_while(is_part).collect();
            name.ends_with(|c: char| c.is_ascii_digit()).then_some(name)
        })
        .collect()
}

/// The same text with comments, strings and character literals blanked, so that offsets and lines stay.
fn without_comments_and_strings(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_to_blank(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            let blanked = chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' });
            out.extend(blanked);
            at = end;
        }
    }
    out
}

/// Where the comment, string or character literal that starts at `at` ends; `at` when none does.
fn token_to_blank(chars: &[char], at: usize) -> usize {
    let starts = |from: usize, text: &str| {
        text.chars().enumerate().all(|(i, c)| chars.get(from + i) == Some(&c))
    };
    if starts(at, "//") {
        return (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len());
    }
    if starts(at, "/*") {
        let (mut depth, mut i) = (0, at);
        while i < chars.len() {
            let step = if starts(i, "/*") {
                depth += 1;
                2
            } else if starts(i, "*/") {
                depth -= 1;
                2
            } else {
                1
            };
            i += step;
            if depth == 0 {
                break;
            }
        }
        return i;
    }
    let word_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if chars[at] == 'r' && (!word_before || chars[at - 1] == 'b') {
        let hashes = (at + 1..chars.len()).take_while(|&i| chars[i] == '#').count();
        if chars.get(at + 1 + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = at + 2 + hashes;
            let end = (body..chars.len()).find(|&i| starts(i, &close));
            return end.map_or(chars.len(), |i| i + 1 + hashes);
        }
    }
    if chars[at] == '"' {
        let mut i = at + 1;
        while i < chars.len() && chars[i] != '"' {
            i += if chars[i] == '\\' { 2 } else { 1 };
        }
        return (i + 1).min(chars.len());
    }
    // A character literal, not a lifetime.
    if chars[at] == '\'' {
        if chars.get(at + 1) == Some(&'\\') {
            let end = (at + 3..chars.len()).find(|&i| chars[i] == '\'');
            return end.map_or(chars.len(), |i| i + 1);
        }
        if chars.get(at + 2) == Some(&'\'') {
            return at + 3;
        }
    }
    at
}
