"""What lets an agent act: one pure judgement over the policies, for the daemon and for `lever policy`."""

from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Allow, Call, Code, Deny, Judgement, RequireApproval, Unresolved

__all__ = ["Allow", "Call", "Code", "Deny", "Judgement", "RequireApproval", "Unresolved", "judge"]
