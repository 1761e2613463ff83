//! For each setting that an untrusted fork may not have: what git runs because of it.

/// One row of the table of refused settings, as a person meets it.
///
/// In all texts `{prog}` is a program that leaves a mark, and `{dir}` a directory for the case.
pub struct Case {
    /// Pattern of the row.
    pub pattern: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    /// What shows that it has its effect.
    pub shown: Shown,
}

pub enum Shown {
    /// A script that runs the program, in a repository with two commits that changed `f`.
    By(&'static str),
    /// Why there is none.
    Not(&'static str),
}

use Shown::{By, Not};

const fn case(pattern: &'static str, key: &'static str, value: &'static str, shown: Shown) -> Case {
    Case {
        pattern,
        key,
        value,
        shown,
    }
}

const FILL: &str = "printf 'protocol=https\\nhost=x\\n\\n' | git credential fill";
const CONFLICT: &str =
    "git switch -qc side HEAD~; echo 5 > f; git commit -qam side; git merge -q main || true";
const NO_PROGRAM: &str = "it leads data elsewhere and runs no program";
const OTHER: &str = "that program does not come with git";

/// One case for each row.
pub const CASES: &[Case] = &[
    case("alias.[*.]*", "alias.zz", "!{prog}", By("git zz")),
    case(
        "annex.[*.]*command*",
        "annex.secure-erase-command",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "browser.*.cmd",
        "browser.m.cmd",
        "{prog}",
        By("git web--browse --browser=m x"),
    ),
    case(
        "browser.*.path",
        "browser.lynx.path",
        "{prog}",
        By("git web--browse --browser=lynx x"),
    ),
    case(
        "core.alternateRefsCommand",
        "core.alternateRefsCommand",
        "{prog}",
        By(
            "git init -q {dir}/o; git -C {dir}/o commit -q --allow-empty -m o; git fetch {dir}/o HEAD",
        ),
    ),
    case("core.askPass", "core.askPass", "{prog}", By(FILL)),
    case(
        "core.editor",
        "core.editor",
        "{prog}",
        By("unset GIT_EDITOR; git commit --amend"),
    ),
    case(
        "core.fsmonitor",
        "core.fsmonitor",
        "{prog}",
        By("git status"),
    ),
    case(
        "core.gitProxy",
        "core.gitProxy",
        "{prog}",
        By("git fetch git://127.0.0.1/x"),
    ),
    case(
        "core.hooksPath",
        "core.hooksPath",
        "{dir}/hooks",
        By("mkdir {dir}/hooks; cp {prog} {dir}/hooks/pre-commit; git commit --allow-empty -m x"),
    ),
    case(
        "core.pager",
        "core.pager",
        "{prog}",
        By("script -qec 'git log' /dev/null"),
    ),
    case(
        "core.sshCommand",
        "core.sshCommand",
        "{prog}",
        By("git fetch ssh://x/y"),
    ),
    case(
        "core.worktree",
        "core.worktree",
        "{dir}",
        By("echo precious > {dir}/f; git checkout -f HEAD; grep -q precious {dir}/f || {prog}"),
    ),
    case(
        "credential.[*.]*",
        "credential.https://x.helper",
        "{prog}",
        By(FILL),
    ),
    case("delta.[*.]pager", "delta.pager", "{prog}", Not(OTHER)),
    case(
        "diff.*.command",
        "diff.m.command",
        "{prog}",
        By("git diff HEAD~"),
    ),
    case(
        "diff.*.textconv",
        "diff.m.textconv",
        "{prog}",
        By("git log -p"),
    ),
    case(
        "diff.external",
        "diff.external",
        "{prog}",
        By("git diff HEAD~"),
    ),
    case(
        "diff.guitool",
        "diff.guitool",
        "../../../../../../../../../../../../../../../../../../../../../../../../{prog}",
        By("git difftool -y --gui HEAD~"),
    ),
    case(
        "diff.tool",
        "diff.tool",
        "../../../../../../../../../../../../../../../../../../../../../../../../{prog}",
        By("git difftool -y HEAD~"),
    ),
    case(
        "difftool.*.cmd",
        "difftool.m.cmd",
        "{prog}",
        By("git difftool -y -t m HEAD~"),
    ),
    case(
        "difftool.*.path",
        "difftool.meld.path",
        "{prog}",
        By("git difftool -y -t meld HEAD~"),
    ),
    case(
        "filter.*.clean",
        "filter.m.clean",
        "{prog}",
        By("echo 6 > f; git status; git add f"),
    ),
    case(
        "filter.*.process",
        "filter.m.process",
        "{prog}",
        By("echo 6 > f; git add f"),
    ),
    case(
        "filter.*.smudge",
        "filter.m.smudge",
        "{prog}",
        By("rm f; git checkout f"),
    ),
    case(
        "format.outputDirectory",
        "format.outputDirectory",
        "{dir}/out",
        By("git format-patch -1; test -d {dir}/out && {prog}"),
    ),
    case(
        "gc.recentObjectsHook",
        "gc.recentObjectsHook",
        "{prog}",
        By(
            "echo x | git hash-object -w --stdin; find .git/objects -type f -exec touch -d '2 hours ago' {} +; git prune --expire=1.hour.ago",
        ),
    ),
    case(
        "gitflow.path.hooks",
        "gitflow.path.hooks",
        "{dir}",
        Not(OTHER),
    ),
    case(
        "gpg.[*.]program",
        "gpg.program",
        "{prog}",
        By("git commit --allow-empty -S -m x"),
    ),
    case(
        "gpg.ssh.allowedSignersFile",
        "gpg.ssh.allowedSignersFile",
        "{dir}/signers",
        Not("it leads to no program"),
    ),
    case(
        "gpg.ssh.defaultKeyCommand",
        "gpg.ssh.defaultKeyCommand",
        "{prog}",
        By("git -c gpg.format=ssh commit --allow-empty -S -m x"),
    ),
    case(
        "guitool.*.cmd",
        "guitool.m.cmd",
        "{prog}",
        Not("it needs a screen"),
    ),
    case(
        "hook.[*.]*",
        "hook.m.command",
        "{prog}",
        Not("git has it since version 2.54"),
    ),
    case(
        "http.[*.]*proxy*",
        "http.proxy",
        "http://127.0.0.1:1",
        Not(NO_PROGRAM),
    ),
    case(
        "http.[*.]*ssl*",
        "http.https://x.sslVerify",
        "false",
        Not(NO_PROGRAM),
    ),
    case(
        "http.[*.]cookieFile",
        "http.cookieFile",
        "{dir}/x",
        Not(NO_PROGRAM),
    ),
    case(
        "http.[*.]curloptResolve",
        "http.curloptResolve",
        "x:443:127.0.0.1",
        Not(NO_PROGRAM),
    ),
    case(
        "http.[*.]saveCookies",
        "http.saveCookies",
        "true",
        Not(NO_PROGRAM),
    ),
    case(
        "i18n.commitEncoding",
        "i18n.commitEncoding",
        "CP856",
        By(
            "git -c i18n.commitEncoding=utf-8 commit -q --allow-empty -m \"$(printf 'x\\342\\227\\231exec {prog}')\"; git commit -q --allow-empty -m last; git rebase -f HEAD~2",
        ),
    ),
    case(
        "i18n.logOutputEncoding",
        "i18n.logOutputEncoding",
        "CP856",
        By(
            "git -c i18n.logOutputEncoding=utf-8 commit -q --allow-empty -m \"$(printf 'x\\342\\227\\231exec {prog}')\"; git commit -q --allow-empty -m last; git rebase -f HEAD~2",
        ),
    ),
    case(
        "imap.tunnel",
        "imap.tunnel",
        "{prog}",
        By("git format-patch --stdout HEAD~ | git -c imap.folder=x imap-send"),
    ),
    case(
        "include.[*.]path",
        "include.path",
        "{dir}/included",
        By("git config -f {dir}/included alias.zz '!{prog}'; git zz"),
    ),
    case(
        "includeIf.*.path",
        "includeIf.gitdir:/.path",
        "{dir}/included",
        By("git config -f {dir}/included alias.zz '!{prog}'; git zz"),
    ),
    case(
        "init.templateDir",
        "init.templateDir",
        "{dir}/template",
        Not("git reads it from other files only, in the versions that we know"),
    ),
    case(
        "instaweb.*",
        "instaweb.httpd",
        "{prog}",
        Not("it needs gitweb"),
    ),
    case(
        "interactive.diffFilter",
        "interactive.diffFilter",
        "{prog}",
        By("echo 6 > f; echo q | git -c color.ui=always add -p"),
    ),
    case(
        "lfs.customtransfer.*.*",
        "lfs.customtransfer.m.path",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "lfs.extension.*.*",
        "lfs.extension.m.clean",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "lfs.standalonetransferagent",
        "lfs.standalonetransferagent",
        "m",
        Not(OTHER),
    ),
    case("lfs.storage", "lfs.storage", "{dir}/lfs", Not(OTHER)),
    case(
        "man.*.cmd",
        "man.yy.cmd",
        "{prog}",
        By("git -c man.viewer=yy help -m log"),
    ),
    case(
        "man.*.path",
        "man.man.path",
        "{prog}",
        By("git -c man.viewer=man help -m log"),
    ),
    case("merge.*.driver", "merge.m.driver", "{prog}", By(CONFLICT)),
    case(
        "merge.guitool",
        "merge.guitool",
        "../../../../../../../../../../../../../../../../../../../../../../../../{prog}",
        By(
            "git switch -qc side HEAD~; echo 5 > f; git commit -qam side; git merge -q main || true; git mergetool -y --gui",
        ),
    ),
    case(
        "merge.tool",
        "merge.tool",
        "../../../../../../../../../../../../../../../../../../../../../../../../{prog}",
        By(
            "git switch -qc side HEAD~; echo 5 > f; git commit -qam side; git merge -q main || true; git mergetool -y",
        ),
    ),
    case(
        "mergetool.*.cmd",
        "mergetool.m.cmd",
        "{prog}",
        By(
            "git switch -qc side HEAD~; echo 5 > f; git commit -qam side; git merge -q main || true; git mergetool -y -t m",
        ),
    ),
    case(
        "mergetool.*.layout",
        "mergetool.vimdiff.layout",
        "LOCAL",
        Not("it needs vim"),
    ),
    case(
        "mergetool.*.path",
        "mergetool.meld.path",
        "{prog}",
        By(
            "git switch -qc side HEAD~; echo 5 > f; git commit -qam side; git merge -q main || true; git mergetool -y -t meld",
        ),
    ),
    case(
        "pager.[*.]*",
        "pager.log",
        "{prog}",
        By("script -qec 'git log' /dev/null"),
    ),
    case(
        "protocol.[*.]allow",
        "protocol.ext.allow",
        "always",
        By("git fetch 'ext::{prog}'"),
    ),
    case(
        "rebase.instructionFormat",
        "rebase.instructionFormat",
        "%s%nexec {prog}",
        By("git rebase -f HEAD~"),
    ),
    case(
        "remote.*.annex-*",
        "remote.o.annex-ssh-options",
        "-oProxyCommand={prog}",
        Not(OTHER),
    ),
    case(
        "remote.*.proxy*",
        "remote.o.proxy",
        "http://127.0.0.1:1",
        Not(NO_PROGRAM),
    ),
    case(
        "remote.*.pushurl",
        "remote.o.pushurl",
        "ext::{prog}",
        By("git -c protocol.ext.allow=always -c remote.o.url=x push o HEAD"),
    ),
    case(
        "remote.*.receivepack",
        "remote.origin.receivepack",
        "{prog}",
        By("git push origin HEAD:refs/heads/x"),
    ),
    case(
        "remote.*.uploadpack",
        "remote.origin.uploadpack",
        "{prog}",
        By("git fetch origin"),
    ),
    case(
        "remote.*.url",
        "remote.o.url",
        "ext::{prog}",
        By("git -c protocol.ext.allow=always fetch o"),
    ),
    case(
        "remote.*.vcs",
        "remote.o.vcs",
        "mm",
        By("cp {prog} {dir}/git-remote-mm; PATH={dir}:$PATH git fetch o"),
    ),
    case(
        "sendemail.[*.]*cmd",
        "sendemail.toCmd",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "sendemail.[*.]smtpServer*",
        "sendemail.smtpServer",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "sequence.editor",
        "sequence.editor",
        "{prog}",
        By("git rebase -i HEAD~"),
    ),
    case(
        "submodule.*.update",
        "submodule.s.update",
        "!{prog}",
        By(
            "git -c protocol.file.allow=always submodule add -q \"$(git config remote.origin.url)\" s; git -C s commit -q --allow-empty -m x; git submodule update",
        ),
    ),
    case(
        "submodule.*.url",
        "submodule.s.url",
        "ext::{prog}",
        By(
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s; git config -f .gitmodules submodule.s.path s; git config -f .gitmodules submodule.s.url https://x; git -c submodule.s.active=true -c protocol.ext.allow=always submodule update",
        ),
    ),
    case(
        "svn.[*.]authorsProg",
        "svn.authorsProg",
        "{prog}",
        Not(OTHER),
    ),
    case(
        "tar.*.command",
        "tar.m.command",
        "{prog}",
        By("git archive --format=m HEAD"),
    ),
    case("tig.[*.]*", "tig.bind", "generic x !{prog}", Not(OTHER)),
    case(
        "trailer.*.cmd",
        "trailer.m.cmd",
        "{prog}",
        By("echo x | git interpret-trailers --trailer m=1"),
    ),
    case(
        "trailer.*.command",
        "trailer.m.command",
        "{prog}",
        By("echo x | git interpret-trailers --trailer m=1"),
    ),
    case(
        "uploadpack.packObjectsHook",
        "uploadpack.packObjectsHook",
        "{prog}",
        Not("git reads it from other files only, in the versions that we know"),
    ),
    case(
        "url.ext::*.*",
        "url.ext::{prog} .insteadOf",
        "zz:",
        By("git -c protocol.ext.allow=always fetch zz:x"),
    ),
];
