use super::quoting::quoted;
use super::*;
use crate::testing::TestRepository;

#[test]
fn lines_are_encoded_so_that_nothing_is_lost_and_nothing_begins_a_mail() {
    assert_eq!(quoted(b"+plain text\n"), b"+plain text\n");
    assert_eq!(quoted(b"+a=b\r\n"), b"+a=3Db=0D\n");
    assert_eq!(quoted(b"From here\n"), b"=46rom here\n");
    assert_eq!(quoted(b"ends in a blank \n"), b"ends in a blank=20\n");
    assert_eq!(quoted(b"\xff"), b"=FF");
    let long = quoted(&[b'x'; 200]);
    assert!(long.split(|&b| b == b'\n').all(|line| line.len() <= 76));
    assert_eq!(long.iter().filter(|&&b| b == b'x').count(), 200);
}

#[test]
fn a_message_that_looks_like_a_mail_begins_none() {
    let id = "0123456789012345678901234567890123456789";
    let commits = RangeCommits {
        plain: vec![ObjectId::from_hex(id.as_bytes()).unwrap()],
        merges: 0,
    };
    let mut mails = Mails::of(&commits);
    mails.classify(format!("From {id} Mon Sep 17 00:00:00 2001\n").as_bytes());
    mails.classify(b"body\n");
    assert!(mails.needs_encoding.is_empty());
    mails.classify(format!("From {} Mon Sep 17 00:00:00 2001\n", "a".repeat(40)).as_bytes());
    assert_eq!((mails.begun, mails.needs_encoding.len()), (1, 1));
}

#[test]
fn the_same_commits_give_the_same_bytes_whatever_is_configured() {
    let test = TestRepository::new();
    test.write("a", "one\ntwo\n");
    test.commit("base");
    test.git(&["mv", "a", "b"]);
    test.write("b", "one\ntwo\nthree\n");
    test.write("crlf", "x\r\n");
    test.commit("[WIP] change");
    let repository = test.open();
    let range = CommitRange {
        base: None,
        head: test.id_of("HEAD"),
    };
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let path = place.path().join(name);
        let commits = repository.commits_in(&range).unwrap();
        let figures = repository.write_mailbox(&range, &commits, &path).unwrap();
        assert_eq!(mailbox_figures(&path).unwrap(), figures);
        fs::read(path).unwrap()
    };
    let plain = write("plain");
    for (number, setting) in [
        "format.numbered true",
        "format.subjectPrefix FOO",
        "format.attach true",
        "format.signature x",
        "format.coverLetter true",
        "format.thread deep",
        "format.signOff true",
        "format.noprefix true",
        "format.headers X-A:b",
        "format.to a@example.org",
        "format.from true",
        "format.useAutoBase true",
        "format.notes true",
        "format.mboxrd true",
        "format.encodeEmailHeaders false",
        "format.outputDirectory /nonexistent",
        "diff.noprefix true",
        "diff.mnemonicPrefix true",
        "diff.srcPrefix x/",
        "diff.orderFile /nonexistent",
        "diff.context 0",
        "diff.external false",
        "diff.renames false",
        "diff.renameLimit 1",
        "diff.algorithm patience",
        "diff.submodule log",
        "color.ui always",
        "core.quotePath false",
        "core.abbrev 4",
        "i18n.logOutputEncoding latin1",
        "log.showRoot false",
        "log.showSignature true",
    ]
    .into_iter()
    .enumerate()
    {
        let (key, value) = setting.split_once(' ').unwrap();
        test.git(&["config", key, value]);
        let with_setting = write(&number.to_string());
        assert!(with_setting == plain, "{setting}");
        test.git(&["config", "--unset", key]);
    }
}
