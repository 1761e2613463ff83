use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::testing::TestRepository;

const KEY: [u8; 16] = [7; 16];

/// A base with a cache of its own.
struct TestBase {
    base: Base,
    spool: tempfile::TempDir,
}

impl std::ops::Deref for TestBase {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

fn open(repository: &TestRepository) -> TestBase {
    let spool = tempfile::tempdir().unwrap();
    let cache = BaseCache::new(spool.path(), 64 << 20).unwrap();
    let opened = repository.open();
    let tree_id = repository.id_of("HEAD^{tree}");
    let base = Base::open(&opened, tree_id, &cache, InoHasher::new(KEY)).unwrap();
    TestBase { base, spool }
}

fn path(path: &str) -> RepoPath {
    RepoPath::parse(path).unwrap()
}

/// Every file and symlink of the base with its content, after checking that each of its sizes is
/// its length.
fn all_contents(base: &Base) -> BTreeMap<RepoPath, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![base.root().unwrap()];
    while let Some(dir) = pending.pop() {
        for (index, entry) in dir.entries.iter().enumerate() {
            let path = dir.path.join(&entry.name);
            assert_eq!(entry.ino, base.hasher().ino(&path));
            match entry.kind {
                TreeEntryKind::Directory => pending.push(base.dir(&path, entry.id).unwrap()),
                TreeEntryKind::Submodule => assert_eq!(base.size(&dir, index).unwrap(), 0),
                kind => {
                    let content = match kind {
                        TreeEntryKind::Symlink => base.raw_content(entry.id),
                        _ => base.content(&path, entry.id),
                    }
                    .unwrap();
                    let bytes = content.to_vec().unwrap();
                    assert_eq!(
                        base.size(&dir, index).unwrap(),
                        bytes.len() as u64,
                        "{path}"
                    );
                    assert_eq!(
                        base.size_at(&path, entry.id).unwrap(),
                        bytes.len() as u64,
                        "{path}"
                    );
                    found.insert(path, bytes);
                }
            }
        }
    }
    found
}

/// Every file and symlink of a fresh worktree of HEAD, as git checks it out.
fn checkout(repository: &TestRepository) -> BTreeMap<RepoPath, Vec<u8>> {
    let dir = repository.dir().join("../checkout");
    repository.git(&[
        "worktree",
        "add",
        "-q",
        "--detach",
        "-f",
        dir.to_str().unwrap(),
    ]);
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.clone()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            let relative = entry.path().strip_prefix(&dir).unwrap().to_owned();
            let path = RepoPath::parse(relative.as_os_str().as_encoded_bytes()).unwrap();
            let kind = entry.file_type().unwrap();
            if path.as_bytes() == b".git" {
                continue;
            } else if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_symlink() {
                let target = std::fs::read_link(entry.path()).unwrap();
                found.insert(path, target.into_os_string().into_encoded_bytes());
            } else {
                found.insert(path, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    repository.git(&["worktree", "remove", "--force", dir.to_str().unwrap()]);
    found
}

/// Compares the base of HEAD with a checkout of it, and gives the paths whose bytes differ from the
/// blob's.
fn converted_as_checked_out(repository: &TestRepository) -> Vec<String> {
    let base = open(repository);
    let contents = all_contents(&base);
    let wanted = checkout(repository);
    assert_eq!(
        contents.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    let mut converted = Vec::new();
    for (path, content) in &contents {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            content,
            &wanted[path],
            "{path}: {:?} {:?}",
            lossy(content),
            lossy(&wanted[path])
        );
        let (dir, index) = base.find(path).unwrap().unwrap();
        let entry = &dir.entries[index];
        if content != &base.repository().read_blob(entry.id).unwrap() {
            assert!(base.is_converted(path).unwrap(), "{path}");
            converted.push(path.to_string());
        }
    }
    converted
}

/// Checks that cleaning `content` for `path` gives what `git add` stores.
fn cleaned_as_added(repository: &TestRepository, base: &Base, name: &str, content: &[u8]) {
    repository.write(name, content);
    repository.git(&["add", "--", name]);
    let wanted = repository.git_bytes(&["cat-file", "blob", &format!(":{name}")], b"");
    let cleaned = base.clean(&path(name), content.to_vec()).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&cleaned),
        String::from_utf8_lossy(&wanted),
        "{name}: {:?}",
        String::from_utf8_lossy(content)
    );
    repository.git(&["reset", "-q", "--", name]);
}

const TEXTS: [&[u8]; 7] = [
    b"one\ntwo\n",
    b"one\r\ntwo\r\n",
    b"mixed\r\none\n",
    b"\0binary\r\n\n",
    b"$Id$ and $Id: something $\n",
    b"",
    b"no end\r",
];

#[test]
fn finds_and_lists_what_the_tree_holds() {
    let repository = TestRepository::new();
    repository.write("b/c/file", "deep");
    repository.write("b.c", "x");
    repository.write("a", "yes");
    std::os::unix::fs::symlink("target", repository.dir().join("link")).unwrap();
    repository.commit("first");
    let base = open(&repository);
    let root = base.root().unwrap();
    let names: Vec<_> = root.entries.iter().map(|e| e.name.to_string()).collect();
    assert_eq!(names, ["a", "b", "b.c", "link"], "in byte order, not git's");
    assert_eq!(root.find(b"b.c"), Some(2));
    assert_eq!(root.find(b"nothing"), None);

    let (dir, index) = base.find(&path("b/c/file")).unwrap().unwrap();
    assert_eq!((&dir.path, index), (&path("b/c"), 0));
    assert_eq!(base.size(&dir, index).unwrap(), 4);
    assert_eq!(base.size(&root, 1).unwrap(), 0, "a directory has no size");
    assert_eq!(
        base.size(&root, 3).unwrap(),
        6,
        "a symlink's is its target's"
    );
    for missing in ["b/x", "a/b", "b/c/file/x", ""] {
        assert!(base.find(&path(missing)).unwrap().is_none(), "{missing}");
    }
    assert!(Arc::ptr_eq(&root, &base.root().unwrap()), "decoded once");
    assert!(converted_as_checked_out(&repository).is_empty());
}

#[test]
fn an_empty_tree_and_a_submodule_are_bases_like_others() {
    let repository = TestRepository::new();
    repository.commit("empty");
    assert!(open(&repository).base.root().unwrap().entries.is_empty());
    let commit = repository.id_of("HEAD").to_string();
    let info = format!("160000,{commit},module");
    repository.git(&["update-index", "--add", "--cacheinfo", &info]);
    repository.git(&["commit", "-qm", "module"]);
    let base = open(&repository);
    let root = base.root().unwrap();
    assert_eq!(root.entries[0].kind, TreeEntryKind::Submodule);
    assert_eq!(base.size(&root, 0).unwrap(), 0);
    assert!(base.find(&path("module/file")).unwrap().is_none());
}

#[test]
fn a_repository_with_sha256_is_a_base_like_others() {
    let repository = TestRepository::with_options(&["--object-format=sha256"]);
    repository.write(".gitattributes", "*.crlf eol=crlf\n*.id ident\n");
    for name in ["a.crlf", "dir/b.id", "plain"] {
        repository.write(name, "line $Id$\n");
    }
    repository.write("large", vec![b'x'; 5 << 20]);
    repository.commit("first");
    assert_eq!(
        converted_as_checked_out(&repository),
        ["a.crlf", "dir/b.id"]
    );
    cleaned_as_added(
        &repository,
        &open(&repository),
        "dir/b.id",
        b"line $Id: other $\n",
    );
}

#[test]
fn large_blobs_are_spooled_once_and_leave_nothing_behind() {
    let repository = TestRepository::new();
    let large: Vec<u8> = (0..6 << 20).map(|n: u32| (n / 7) as u8).collect();
    let huge: Vec<u8> = (0..40 << 20).map(|n: u32| (n / 977) as u8).collect();
    repository.write("large", &large);
    repository.write("huge", &huge);
    repository.commit("first");
    let base = open(&repository);
    let spool = &base.spool;
    for (name, bytes) in [("large", large), ("huge", huge)] {
        let id = repository.id_of(&format!("HEAD:{name}"));
        let content = base.content(&path(name), id).unwrap();
        let BlobContent::Spooled(file, len) = &content else {
            panic!("{name} was held in memory");
        };
        assert_eq!(*len, bytes.len() as u64);
        let mut buffer = [0; 100];
        assert_eq!(content.read_at(&mut buffer, 12_345).unwrap(), 100);
        assert_eq!(buffer, bytes[12_345..12_445]);
        assert_eq!(content.read_at(&mut buffer, len - 10).unwrap(), 10);
        assert_eq!(content.read_at(&mut buffer, len + 10).unwrap(), 0);
        assert!(content.to_vec().unwrap() == bytes);
        let BlobContent::Spooled(again, _) = base.raw_content(id).unwrap() else {
            panic!("{name} was held in memory");
        };
        assert!(Arc::ptr_eq(file, &again));
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
    std::fs::write(spool.path().join("leftover"), "x").unwrap();
    BaseCache::new(spool.path(), 1 << 20).unwrap();
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

#[test]
fn reading_a_range_of_what_is_in_memory_stops_at_its_end() {
    let content = BlobContent::Memory(b"0123456789".as_slice().into());
    let mut buffer = [0; 4];
    assert_eq!(content.read_at(&mut buffer, 8).unwrap(), 2);
    assert_eq!(content.read_at(&mut buffer, 10).unwrap(), 0);
    assert_eq!(content.read_at(&mut buffer, u64::MAX).unwrap(), 0);
}

#[test]
fn a_cache_smaller_than_what_is_read_gives_the_same_bytes() {
    let repository = TestRepository::new();
    for n in 0..50 {
        repository.write(&format!("dir{}/file{n}", n % 7), vec![n as u8; 10_000]);
    }
    repository.commit("first");
    let spool = tempfile::tempdir().unwrap();
    let cache = BaseCache::new(spool.path(), 50_000).unwrap();
    let tree_id = repository.id_of("HEAD^{tree}");
    let base = Base::open(&repository.open(), tree_id, &cache, InoHasher::new(KEY)).unwrap();
    for _ in 0..2 {
        assert_eq!(all_contents(&base), checkout(&repository));
    }
}

#[test]
fn many_threads_read_the_same_and_each_other_s() {
    let repository = TestRepository::new();
    for n in 0..200 {
        repository.write(
            &format!("dir{}/file{n}", n % 9),
            format!("content {n}").repeat(n),
        );
    }
    repository.write("large", vec![9; 5 << 20]);
    repository.commit("first");
    let base = open(&repository);
    let wanted = checkout(&repository);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(all_contents(&base) == wanted));
        }
    });
}

#[test]
fn line_ends_are_those_of_a_checkout_by_configuration() {
    for (autocrlf, eol, converts) in [
        ("true", "", true),
        ("input", "", false),
        ("false", "crlf", false),
        ("false", "", false),
    ] {
        let repository = TestRepository::new();
        for (n, text) in TEXTS.iter().enumerate() {
            repository.write(&format!("dir/file{n}"), text);
        }
        repository.commit("first");
        repository.git(&["config", "core.autocrlf", autocrlf]);
        if !eol.is_empty() {
            repository.git(&["config", "core.eol", eol]);
        }
        let converted = converted_as_checked_out(&repository);
        assert_eq!(
            !converted.is_empty(),
            converts,
            "{autocrlf} {eol}: {converted:?}"
        );
        let base = open(&repository);
        for (n, text) in TEXTS.iter().enumerate() {
            cleaned_as_added(&repository, &base, "dir/new", text);
            cleaned_as_added(
                &repository,
                &base,
                &format!("dir/file{n}"),
                b"edited\r\nline\r\n",
            );
        }
    }
}

#[test]
fn attributes_rule_as_git_reads_them() {
    let rules = "* text=auto\n*.crlf eol=crlf\n*.lf eol=lf\n*.bin -text\n*.id ident\n*.old crlf\n*.in crlf=input\n\
                 [attr]winfile text eol=crlf\n*.win winfile\n*.utf16 text working-tree-encoding=UTF-16LE eol=crlf\n\
                 sub/only.txt eol=crlf\n# comment\n\"quoted name\" eol=crlf\n*.x text=auto eol=crlf\n!*.y text\n";
    for eol in ["lf", "crlf"] {
        let repository = TestRepository::new();
        repository.git(&["config", "core.eol", eol]);
        repository.write(".gitattributes", rules);
        repository.write(
            "sub/.gitattributes",
            "*.crlf -eol\n/deep/*.lf eol=crlf\n*.id -ident\n[attr]bad text\n",
        );
        repository.write("sub/deep/.gitattributes", "*.bin text eol=crlf\n");
        repository.write(".git/info/attributes", "*.info eol=crlf\n*.win -text\n");
        let endings = [
            "crlf", "lf", "bin", "id", "old", "in", "win", "info", "x", "y", "txt",
        ];
        let mut names = Vec::new();
        for dir in ["", "sub/", "sub/deep/", "other/"] {
            for ending in endings {
                for (n, text) in TEXTS.iter().enumerate() {
                    let name = format!("{dir}file{n}.{ending}");
                    repository.write(&name, text);
                    names.push(name);
                }
            }
        }
        repository.write("sub/only.txt", "a\nb\n");
        repository.write("quoted name", "a\nb\n");
        repository.write(" leading blank.crlf", "a\nb\n");
        repository.write("line\nend.crlf", "a\nb\n");
        let utf16: Vec<u8> = "text\r\n\u{e4}\r\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        repository.write("file.utf16", &utf16);
        std::os::unix::fs::symlink("file0.crlf", repository.dir().join("link.crlf")).unwrap();
        repository.commit("first");
        let converted = converted_as_checked_out(&repository);
        for name in [
            "sub/only.txt",
            "quoted name",
            " leading blank.crlf",
            "line\nend.crlf",
            "file.utf16",
            "file4.id",
        ] {
            assert!(
                converted.iter().any(|c| c == name),
                "{name} in {converted:?}"
            );
        }
        assert!(!converted.iter().any(|c| c == "link.crlf"));

        let base = open(&repository);
        for name in names.iter().filter(|name| name.contains("file1")) {
            for text in TEXTS {
                cleaned_as_added(&repository, &base, name, text);
            }
        }
        cleaned_as_added(&repository, &base, "new.utf16", &utf16);
        cleaned_as_added(&repository, &base, "new/dir/new.crlf", b"a\r\nb\r\n");
    }
}

#[test]
fn filter_drivers_convert_both_ways() {
    let repository = TestRepository::new();
    repository.write(
        ".gitattributes",
        "*.up filter=case\n*.gone filter=unknown\n*.pass filter=clean-only\n",
    );
    repository.git(&["config", "filter.case.clean", "tr A-Z a-z"]);
    repository.git(&["config", "filter.case.smudge", "tr a-z A-Z"]);
    repository.git(&["config", "filter.clean-only.clean", "./clean.sh %f"]);
    repository.write("clean.sh", "#!/bin/sh\nsed \"s/secret/$1/\"\n");
    use std::os::unix::fs::PermissionsExt;
    let script = repository.dir().join("clean.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["a.up", "dir/b.up", "c.gone", "d.pass"] {
        repository.write(name, "Some secret Text\n");
    }
    // Larger than a pipe, so that input and output must flow at the same time, and than what is
    // held in memory.
    repository.write("big.up", "Some secret Text\n".repeat(400_000));
    repository.commit("first");
    let converted = converted_as_checked_out(&repository);
    assert_eq!(converted, ["a.up", "big.up", "dir/b.up"]);
    let base = open(&repository);
    for name in ["new.up", "new.gone", "new.pass"] {
        cleaned_as_added(&repository, &base, name, b"Some secret TEXT\n");
        cleaned_as_added(
            &repository,
            &base,
            name,
            &b"Some secret TEXT\n".repeat(20_000),
        );
    }
    let id = repository.id_of("HEAD:big.up");
    assert!(matches!(
        base.content(&path("big.up"), id).unwrap(),
        BlobContent::Spooled(..)
    ));
}

#[test]
fn a_required_filter_that_fails_is_an_error_and_the_next_file_is_read_all_the_same() {
    let repository = TestRepository::new();
    repository.write(
        ".gitattributes",
        "*.bad filter=bad\n*.weak filter=weak\n*.half filter=half\n*.crlf eol=crlf\n",
    );
    for name in ["a.bad", "a.weak", "a.crlf"] {
        repository.write(name, "text\n");
    }
    repository.commit("first");
    repository.git(&["config", "filter.bad.smudge", "echo no luck >&2; false"]);
    repository.git(&["config", "filter.bad.clean", "false"]);
    repository.git(&["config", "filter.bad.required", "true"]);
    repository.git(&["config", "filter.half.smudge", "cat"]);
    repository.git(&["config", "filter.half.required", "true"]);
    repository.git(&["config", "filter.weak.smudge", "false"]);
    repository.git(&["config", "filter.weak.clean", "false"]);
    let base = open(&repository);
    let read = |name: &str| {
        let id = repository.id_of(&format!("HEAD:{name}"));
        base.content(&path(name), id)
            .map(|content| content.to_vec().unwrap())
    };
    for _ in 0..2 {
        let error = read("a.bad").unwrap_err().to_string();
        assert!(
            error.contains("a.bad") && error.contains("smudge filter bad failed"),
            "{error}"
        );
        assert_eq!(read("a.crlf").unwrap(), b"text\r\n");
        assert_eq!(
            read("a.weak").unwrap(),
            b"text\n",
            "as git, which only complains"
        );
        let (root, index) = base.find(&path("a.bad")).unwrap().unwrap();
        assert!(base.size(&root, index).is_err());
    }
    assert!(base.clean(&path("a.bad"), b"text\n".to_vec()).is_err());
    assert!(
        base.clean(&path("a.half"), b"text\n".to_vec()).is_err(),
        "required, but has no clean command"
    );
    assert_eq!(
        base.clean(&path("a.weak"), b"text\n".to_vec()).unwrap(),
        b"text\n"
    );
}

#[test]
fn a_converter_that_was_killed_while_idle_is_started_again() {
    let repository = TestRepository::new();
    repository.write(".gitattributes", "* eol=crlf\n");
    repository.write("a", "one\n");
    repository.write("b", "two\n");
    repository.commit("first");
    let base = open(&repository);
    let read = |name: &str| {
        let id = repository.id_of(&format!("HEAD:{name}"));
        base.content(&path(name), id).unwrap().to_vec().unwrap()
    };
    assert_eq!(read("a"), b"one\r\n");
    base.conversions.kill_converter();
    assert_eq!(read("b"), b"two\r\n");
}

#[test]
fn missing_and_damaged_blobs_are_errors_on_every_path() {
    let repository = TestRepository::new();
    repository.write(".gitattributes", "*.crlf eol=crlf\n");
    repository.write("a.crlf", "one\n");
    repository.write("b", "two\n");
    repository.commit("first");
    for name in ["a.crlf", "b"] {
        let hex = repository.id_of(&format!("HEAD:{name}")).to_string();
        std::fs::remove_file(
            repository
                .dir()
                .join(".git/objects")
                .join(&hex[..2])
                .join(&hex[2..]),
        )
        .unwrap();
    }
    let base = open(&repository);
    let root = base.root().unwrap();
    for name in ["a.crlf", "b"] {
        let index = root.find(name.as_bytes()).unwrap();
        let id = root.entries[index].id;
        for result in [
            base.size(&root, index).map(drop),
            base.size_at(&path(name), id).map(drop),
            base.content(&path(name), id).map(drop),
            base.raw_content(id).map(drop),
        ] {
            assert!(
                matches!(result, Err(GitError::MissingObject { id: missing }) if missing == id),
                "{name}"
            );
        }
    }
}

#[test]
fn a_blob_swapped_for_another_is_an_error_where_it_is_converted_too() {
    let repository = TestRepository::new();
    repository.write(".gitattributes", "*.crlf eol=crlf\n");
    repository.write("a.crlf", "one\n");
    repository.write("b.crlf", "two\n");
    repository.commit("first");
    let loose = |name: &str| {
        let hex = repository.id_of(&format!("HEAD:{name}")).to_string();
        repository
            .dir()
            .join(".git/objects")
            .join(&hex[..2])
            .join(&hex[2..])
    };
    std::fs::remove_file(loose("a.crlf")).unwrap();
    std::fs::copy(loose("b.crlf"), loose("a.crlf")).unwrap();
    let base = open(&repository);
    let read = |name: &str| base.content(&path(name), repository.id_of(&format!("HEAD:{name}")));
    assert!(matches!(
        read("a.crlf"),
        Err(GitError::CorruptObject { .. })
    ));
    assert_eq!(read("b.crlf").unwrap().to_vec().unwrap(), b"two\r\n");
}

#[test]
fn a_partial_clone_is_filled_by_directory() {
    for filter in ["--filter=blob:none", "--filter=tree:0"] {
        let repository = TestRepository::new();
        for n in 0..30 {
            repository.write(&format!("dir/file{n}"), format!("content {n}\n"));
        }
        repository.write("dir/.gitattributes", "file3 eol=crlf\n");
        repository.commit("first");
        repository.git(&["config", "uploadpack.allowFilter", "true"]);
        repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
        let clone = repository.dir().join("../partial");
        let url = format!("file://{}", repository.dir().display());
        repository.git(&[
            "clone",
            "-q",
            "--bare",
            filter,
            &url,
            clone.to_str().unwrap(),
        ]);
        let opened = Repository::discover(&clone).unwrap();
        let spool = tempfile::tempdir().unwrap();
        let cache = BaseCache::new(spool.path(), 1 << 20).unwrap();
        let tree_id = repository.id_of("HEAD^{tree}");
        let base = Base::open(&opened, tree_id, &cache, InoHasher::new(KEY)).unwrap();
        let (dir, index) = base.find(&path("dir/file7")).unwrap().unwrap();
        assert_eq!(base.size(&dir, index).unwrap(), 10);
        let is_here = |entry: &BaseEntry| opened.has_object(entry.id);
        assert!(dir.entries.iter().all(is_here), "one size asks for all");
        let contents = all_contents(&base);
        assert_eq!(contents, checkout(&repository));
        assert_eq!(
            contents[&path("dir/file3")],
            b"content 3\r\n",
            "in a bare repository, too"
        );
    }
}

/// Text of the pieces that conversions look at. No half keywords: at those the streaming filter of
/// git's own checkout goes wrong (convert.c, `ident_filter_fn`: `$$Id$` is not expanded, of
/// `$Id $Id$` the beginning is lost).
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "long line",
        "\n",
        "\r\n",
        "\r\n",
        "\r",
        "\0",
        "$Id$",
        "$Id: x $",
        "\u{1a}",
        "\u{e4}",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn any_text_is_converted_both_ways_as_git_does(
        autocrlf in prop::sample::select(vec!["false", "true", "input"]),
        eol in prop::sample::select(vec!["native", "lf", "crlf"]),
        files in prop::collection::vec((
            prop::sample::select(vec![
                "", "text", "-text", "text=auto", "text eol=crlf", "text=auto eol=crlf", "eol=lf", "eol=crlf",
                "text=auto eol=lf", "ident", "text=auto ident", "crlf", "-crlf", "crlf=input", "text=auto filter=up",
                "filter=up eol=crlf ident",
            ]),
            text(),
            text(),
        ), 6..16),
    ) {
        let repository = TestRepository::new();
        repository.git(&["config", "core.autocrlf", autocrlf]);
        repository.git(&["config", "core.eol", eol]);
        repository.git(&["config", "filter.up.clean", "tr A-Z a-z"]);
        repository.git(&["config", "filter.up.smudge", "tr a-z A-Z"]);
        let (mut rules, mut listing) = (String::new(), String::new());
        for (n, (attributes, stored, _)) in files.iter().enumerate() {
            rules.push_str(&format!("file{n} {attributes}\nnew{n} {attributes}\n"));
            let id = repository.write_object("blob", stored.as_bytes());
            listing.push_str(&format!("100644 {id}\tfile{n}\n"));
        }
        let id = repository.write_object("blob", rules.as_bytes());
        listing.push_str(&format!("100644 {id}\t.gitattributes\n"));
        repository.git_with_input(&["update-index", "--index-info"], listing.as_bytes());
        repository.git(&["commit", "-q", "-m", "raw"]);
        converted_as_checked_out(&repository);
        repository.write(".gitattributes", &rules);
        let base = open(&repository);
        for (n, (_, _, content)) in files.iter().enumerate() {
            cleaned_as_added(&repository, &base, &format!("file{n}"), content.as_bytes());
            cleaned_as_added(&repository, &base, &format!("new{n}"), content.as_bytes());
        }
    }
}

#[test]
fn a_directory_that_is_larger_than_the_cache_is_read_once() {
    let spool = tempfile::tempdir().unwrap();
    let cache = BaseCache::new(spool.path(), 1 << 20).unwrap();
    let id = ObjectId::null(gix::hash::Kind::Sha1);
    let entries: Box<[BaseEntry]> = (0..1_100_000u32)
        .map(|number| BaseEntry {
            name: EntryName::new(number.to_string()).unwrap(),
            kind: TreeEntryKind::File,
            id,
            ino: Ino(2),
        })
        .collect();
    let mut large = Some(BaseDir {
        path: RepoPath::root(),
        tree_id: id,
        entries,
        sizes: Box::default(),
    });
    for _ in 0..3 {
        let dir = cache.dir(&RepoPath::root(), id, 0, || {
            Ok(large.take().expect("it was read before"))
        });
        assert_eq!(dir.unwrap().entries.len(), 1_100_000);
    }
    assert_eq!(cache.figures().large_directories.used, 1);
}
