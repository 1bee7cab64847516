/* Claims on rows (native/core/index/claims.cpp, native/core/claim_judge.hpp, transferqueue/client/claims.py).

   Two processes claim the one row of a task in turn, work, and acknowledge or give back; either may be killed, or stopped for
   longer than its lease. Time runs. Every call is one write transaction, in which the judge reads the clock and the lock.

   Checked: of all that was claimed at most one acknowledgement wins, and what it acknowledged was nobody else's at that moment;
   a row is never in two claims that are not over; a row that nobody acknowledged comes back.

   MUTANT 1 ack_without_record: an ack does not look whether its claim still stands
   MUTANT 2 ack_after_deadline: an ack does not look at the clock
   MUTANT 3 ignores_claims: claiming looks at the marks only
   MUTANT 4 never_lapses: a claim is over by ack or nack only, so that a dead process keeps its rows
   MUTANT 5 judged_before: whether a claim is over was asked before the transaction, and is not asked again in it
   MUTANT 6 no_fencing: a claim is known by its owner, not by a number of its own
   MUTANT 7 extends_the_lapsed: a claim that is over can be extended
   MUTANT 8 ack_without_mark: an ack removes the claim and does not mark the row as consumed */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define LEASE 2
#define LAST 4

/* the index: the one claim record of the row, 0: none */
byte fencing, owner, deadline;
byte next_fencing = 1;
bit consumed;
bit killed[8];             /* by pid of the model: its lock is free */
byte now;

byte acks;                 /* ghost: that succeeded */
byte until[6];             /* ghost, by fencing number: when the claim runs out; 0: ended */
byte made_by[6];           /* ghost */

#define is_over(o, d) (((now >= d) || killed[o]) && !M(4))
#define relies(n) (now < until[n] && !killed[made_by[n]])
#define anybody_but(n) ((n != 1 && relies(1)) || (n != 2 && relies(2)) || (n != 3 && relies(3)) || (n != 4 && relies(4)))
/* find_claim */
#define stands(n) (M(1) || ((fencing == n || (M(6) && fencing != 0 && owner == _pid)) && (M(2) || !is_over(owner, deadline))))

proctype Process() provided (!killed[_pid]) {
  byte mine, earlier, rounds; bit free_, over_before;
  do
  :: rounds < 3 - _pid ->                            /* the first process twice */
     rounds++;
     if :: M(5) -> over_before = (fencing != 0 && is_over(owner, deadline)) :: else fi;
     d_step {                                        /* Index::claim */
       free_ = !consumed && (fencing == 0 || is_over(owner, deadline) || M(3) || over_before);
       if
       :: free_ ->
          assert(!anybody_but(0));                   /* never in two claims */
          earlier = mine; mine = next_fencing; next_fencing++;
          fencing = mine; owner = _pid; deadline = now + LEASE;
          until[mine] = deadline; made_by[mine] = _pid
       :: else
       fi;
       free_ = 0; over_before = 0
     };
     if :: earlier != 0 -> d_step { mine = earlier; earlier = 0 } :: skip fi;   /* another thread still works on the first */
     if
     :: mine != 0 ->
        if
        :: d_step {                                  /* Index::extend_claim */
             if
             :: fencing == mine && (!is_over(owner, deadline) || M(7)) ->
                assert(!consumed && now < until[mine]);    /* what is over stays over */
                deadline = now + LEASE; until[mine] = deadline
             :: else
             fi
           }
        :: skip
        fi;
        if
        :: d_step {                                  /* Index::finish_claim(consumed = true) */
             if
             :: stands(mine) ->
                assert(!anybody_but(mine) && now < until[mine]);
                acks++;
                assert(acks == 1);                   /* exactly one wins */
                consumed = !M(8);
                fencing = 0
             :: else                                 /* StaleMetadataError */
             fi;
             until[mine] = 0
           }
        :: d_step { if :: stands(mine) -> fencing = 0 :: else fi; until[mine] = 0 }   /* the same, consumed = false */
        :: skip                                      /* forgotten: an iterator that was dropped */
        fi
     :: else
     fi
  :: else -> break
  od;
  skip;
  d_step { rounds = 0; mine = 0; earlier = 0 }
}

proctype Clock() { do :: now < LAST -> now++ :: else -> break od }
proctype Killer() { if :: killed[1] = 1 :: skip fi }

/* Long after everything: the row is consumed, or can be claimed. */
proctype Judge() {
  timeout ->
  d_step { now = 99; assert(consumed == (acks == 1)); assert(consumed || fencing == 0 || is_over(owner, deadline)) }
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic { run Process(); run Process(); run Clock(); run Killer(); run Judge() }
}
