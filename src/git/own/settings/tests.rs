use std::fs;

use proptest::prelude::*;

use super::*;
use crate::testing::TestRepository;

/// Settings as git lists them in a file.
fn listed_by_git(test: &TestRepository, content: &[u8]) -> Vec<Setting> {
    let path = test.dir().join("../listed");
    fs::write(&path, content).unwrap();
    let output = test.git_bytes(
        &["config", "--no-includes", "-f", "../listed", "--list", "-z"],
        b"",
    );
    entries(&output)
}

fn entries(output: &[u8]) -> Vec<Setting> {
    let entries = output.split(|&byte| byte == 0);
    let entries = entries.filter(|entry| !entry.is_empty()).map(|entry| {
        match entry.iter().position(|&byte| byte == b'\n') {
            Some(at) => Setting {
                key: entry[..at].to_vec(),
                value: Some(entry[at + 1..].to_vec()),
            },
            None => Setting {
                key: entry.to_vec(),
                value: None,
            },
        }
    });
    entries.collect()
}

fn keys(settings: &[Setting]) -> Vec<&[u8]> {
    settings.iter().map(|setting| &setting.key[..]).collect()
}

fn setting(key: &str, value: Option<&str>) -> Setting {
    Setting {
        key: key.as_bytes().to_vec(),
        value: value.map(|value| value.as_bytes().to_vec()),
    }
}

#[test]
fn a_fork_sees_the_settings_but_no_secrets() {
    let test = TestRepository::new();
    fs::write(test.dir().join(".git/config"), b"").unwrap();
    for (key, value) in [
        ("user.name", "A \"B\" \\ C; # d"),
        ("remote.origin.url", "https://user:secret1@host/x.git"),
        ("remote.origin.pushurl", "ssh://git@host/x.git"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("url.https://secret2@host/.insteadOf", "gh:"),
        ("submodule.A b.url", "https://secret3@host/y"),
        ("http.https://u:secret4@host/.sslVerify", "false"),
        ("http.https://host/.extraHeader", "Authorization: secret5"),
        ("http.proxy", "http://u:secret6@proxy:3128"),
        ("http.sslKey", "/secret7"),
        ("http.cookieFile", "/secret8"),
        ("credential.https://host.helper", "!secret9"),
        ("sendemail.smtpPass", "secret10"),
        ("sendemail.work.smtpPass", "secret11"),
        ("github.token", "secret12"),
        ("gitlab.https://host.oauthToken", "secret13"),
        ("hub.host", "secret14"),
        ("imap.pass", "secret15"),
        ("receive.certNonceSeed", "secret16"),
        ("core.worktree", "/elsewhere"),
        ("core.fsmonitor", "true"),
        ("alias.lg", "log --graph"),
        ("alias.x", "!curl https://secret17@host"),
        ("core.hooksPath", ".husky/_"),
        ("branch.main.remote", "origin"),
    ] {
        fs::write(test.dir().join(".git/one"), b"").unwrap();
        test.git(&["config", "-f", ".git/one", key, value]);
        let mut all = fs::read(test.dir().join(".git/config")).unwrap();
        all.extend(fs::read(test.dir().join(".git/one")).unwrap());
        fs::write(test.dir().join(".git/config"), all).unwrap();
    }
    // git would look for the checkout in the other place.
    let config = test.dir().join(".git/config");
    let text = fs::read_to_string(&config).unwrap();
    let repository = {
        fs::write(
            &config,
            text.replace("/elsewhere", test.dir().to_str().unwrap()),
        )
        .unwrap();
        test.open()
    };
    let shared = shared_settings(&repository, false).unwrap();
    let text = String::from_utf8(shared.clone()).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let expected = [
        setting("user.name", Some("A \"B\" \\ C; # d")),
        setting("url.https://host/.insteadof", Some("gh:")),
        setting("http.https://host/.sslverify", Some("false")),
        setting("http.proxy", Some("http://proxy:3128")),
        setting("alias.lg", Some("log --graph")),
        setting("alias.x", Some("!curl https://host")),
        setting("core.hookspath", Some(".husky/_")),
    ];
    assert_eq!(listed_by_git(&test, &shared), expected);
    let copied = [
        setting("remote.origin.url", Some("https://host/x.git")),
        setting("remote.origin.pushurl", Some("ssh://git@host/x.git")),
        setting(
            "remote.origin.fetch",
            Some("+refs/heads/*:refs/remotes/origin/*"),
        ),
        setting("submodule.A b.url", Some("https://host/y")),
        setting("branch.main.remote", Some("origin")),
    ];
    assert_eq!(copied_settings(&repository).unwrap(), copied);
}

#[test]
fn relative_paths_to_remotes_become_absolute() {
    let test = TestRepository::new();
    let above = test.dir().join("..").canonicalize().unwrap();
    fs::create_dir(above.join("up.git")).unwrap();
    let absolute = |path: &str| above.join(path).to_str().unwrap().to_owned();
    let gone = test.dir().canonicalize().unwrap().join("gone.git");
    for (url, expected) in [
        ("../up.git", absolute("up.git")),
        ("gone.git", gone.to_str().unwrap().to_owned()),
        ("/x/../y", "/x/../y".to_owned()),
        ("host:x", "host:x".to_owned()),
        ("file:///x", "file:///x".to_owned()),
    ] {
        test.git(&["config", "remote.a.url", url]);
        let copied = copied_settings(&test.open()).unwrap();
        assert_eq!(copied, [setting("remote.a.url", Some(&expected))], "{url}");
    }
}

#[test]
fn included_files_and_the_checkout_s_own_settings_are_resolved() {
    let test = TestRepository::new();
    fs::write(test.dir().join(".git/more"), "[user]\n\tname = included\n").unwrap();
    fs::write(test.dir().join(".git/no"), "[user]\n\tname = never\n").unwrap();
    test.git(&["config", "include.path", "more"]);
    test.git(&["config", "includeIf.gitdir:/nonexistent/.path", "no"]);
    test.git(&["config", "extensions.worktreeConfig", "true"]);
    test.git(&["config", "--worktree", "user.email", "checkout@example.org"]);
    let shared = listed_by_git(&test, &shared_settings(&test.open(), false).unwrap());
    assert_eq!(
        shared,
        [
            setting("user.name", Some("included")),
            setting("user.email", Some("checkout@example.org")),
        ]
    );
}

#[test]
fn a_strange_key_hides_no_other() {
    let test = TestRepository::new();
    let repository = test.open();
    let config = test.dir().join(".git/config");
    let kept = b"[ \"strange\"]\n\tkey = 1\n[a \"x\xff]\\\\\\\"\"]\n\tb\n\tB = \xfe\n";
    // A key outside every section cannot be written behind others.
    fs::write(&config, [b"outside = 1\n", &kept[..]].concat()).unwrap();
    let key = b"a.x\xff]\\\".b".to_vec();
    let expected = [
        setting(".strange.key", Some("1")),
        Setting {
            key: key.clone(),
            value: None,
        },
        Setting {
            key,
            value: Some(b"\xfe".to_vec()),
        },
    ];
    let shared = shared_settings(&repository, false).unwrap();
    assert_eq!(listed_by_git(&test, &shared), expected);
}

#[test]
fn a_fork_s_own_file_is_known_and_opens_as_a_repository() {
    let test = TestRepository::with_options(&["--object-format=sha256"]);
    test.git(&["config", "core.fileMode", "false"]);
    let command = b"exec '/a b' 2>/dev/null".to_vec();
    let choices = OwnSettings::for_fork_of(&test.open(), Some(command.clone())).unwrap();
    let own = own_settings(&choices);
    assert!(is_own(&own));
    assert!(!is_own(&fs::read(test.dir().join(".git/config")).unwrap()));
    assert!(!is_own(b""));
    let expected = [
        setting("include.path", Some("tine/config")),
        setting("core.repositoryformatversion", Some("1")),
        setting("extensions.objectformat", Some("sha256")),
        setting("core.bare", Some("false")),
        setting("core.filemode", Some("false")),
        setting("core.logallrefupdates", Some("true")),
        setting("core.symlinks", Some("true")),
        setting("core.ignorecase", Some("false")),
        setting("core.fsmonitor", Some("exec '/a b' 2>/dev/null")),
        setting("core.fsmonitorhookversion", Some("2")),
        setting("core.untrackedcache", Some("true")),
        setting("fsmonitor.allowremote", Some("true")),
    ];
    assert_eq!(listed_by_git(&test, &own), expected);

    // The fork's own settings win over the shared ones.
    let fork = TestRepository::with_options(&["--object-format=sha256"]);
    let git_dir = fork.dir().join(".git");
    fs::create_dir(git_dir.join("tine")).unwrap();
    fs::write(
        git_dir.join("tine/config"),
        "[user]\nname = shared\nemail = shared\n",
    )
    .unwrap();
    fs::write(git_dir.join("config"), &own).unwrap();
    fork.git(&["config", "user.name", "own"]);
    assert_eq!(fork.git(&["config", "user.name"]), "own");
    assert_eq!(fork.git(&["config", "user.email"]), "shared");
    assert_eq!(fork.git(&["rev-parse", "--show-object-format"]), "sha256");
    assert!(is_own(&fs::read(git_dir.join("config")).unwrap()));
}

/// A key and a value as a person might set them.
fn written() -> impl Strategy<Value = (String, String)> {
    let section = prop_oneof![
        Just("remote"),
        Just("HTTP"),
        Just("core"),
        Just("a-b"),
        Just("credential"),
        Just("Alias"),
    ];
    let subsection = prop_oneof![
        Just(String::new()),
        "[ -~äß]{0,12}".prop_map(|text| format!("{text}.")),
        Just("https://u:p@h/.".to_owned()),
    ];
    let variable = prop_oneof![
        "[a-zA-Z][a-zA-Z0-9-]{0,6}",
        Just("url".to_owned()),
        Just("extraHeader".to_owned()),
    ];
    let value = "[ -~\t\n\u{8}ä]{0,16}";
    ((section, subsection, variable), value).prop_map(|((section, subsection, variable), value)| {
        (format!("{section}.{subsection}{variable}"), value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_git_reads_in_a_fork_is_what_it_reads_in_the_main_repository(
        settings in prop::collection::vec(written(), 1..10)
    ) {
        let test = TestRepository::new();
        for (key, value) in &settings {
            // git rejects some.
            test.try_git(&["config", "--add", key, value], b"");
        }
        let local = entries(&test.git_bytes(&["config", "--local", "--includes", "--list", "-z"], b""));
        let expected: Vec<Setting> = local.into_iter().filter_map(as_shared).collect();
        let copied = copied_settings(&test.open()).unwrap();
        let (copied_too, expected): (Vec<Setting>, Vec<Setting>) =
            expected.into_iter().partition(is_copied);
        prop_assert_eq!(keys(&copied), keys(&copied_too));
        let shared = shared_settings(&test.open(), false).unwrap();
        prop_assert_eq!(listed_by_git(&test, &shared), expected.clone());
        prop_assert_eq!(parse(&shared), (expected, true));
    }

    /// Any key that git sees, the parser sees.
    #[test]
    fn the_parser_sees_what_git_sees(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "[core]", "[a \"b\"]", "[a.B]", "[a \"\\\"\\x\"]", "[ \"x\"]", "\n", "\r\n", "\r", "\t",
                    " ", "key", "=", "\"", "\\", "\\\n", "\\n", ";", "#", "[", "]", "\0", "\u{feff}",
                    "value", "[core]\nkey = value\n", "[core \"a\0b\"]", "\nkey\n", "\u{b}", "\u{c}",
                    "\nk=\"a;b\" c # d\n", "[include]path=x\n", "-", "1", ".", "k\\\r\nv",
                ]).prop_map(|text| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..3),
            ],
            0..14,
        )
    ) {
        let content = pieces.concat();
        let test = TestRepository::new();
        let path = test.dir().join("../listed");
        fs::write(&path, &content).unwrap();
        let seen = test.try_git(
            &["config", "--no-includes", "-f", "../listed", "--list", "-z"],
            b"",
        );
        let (parsed, is_whole) = parse(&content);
        let seen_settings = entries(&seen.stdout);
        // git may lose what it printed before it dies.
        if seen.status.success() {
            prop_assert_eq!(&parsed, &seen_settings);
            prop_assert!(is_whole);
        } else {
            prop_assert!(parsed.starts_with(&seen_settings), "{:?} {:?}", parsed, seen_settings);
            prop_assert!(!is_whole);
        }
    }
}
