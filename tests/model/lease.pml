/* Leases against retirement: who reads a block and who frees it (native/core/memory/lease.cpp, retire.cpp, lease_directory.cpp,
   native/core/store/resolve.cpp, give_back.cpp).

   One row whose block is cleared away, retired, freed, and whose slot and bytes are then another block's. Beside one reader
   either a second retirer (`reclaim` of another process), or a second reader that joins late and may be killed anywhere.

   Memory: a store may stay unseen by the plain loads of others until its process fences; process Memory makes it seen at any
   earlier moment. `old_word`, `old_entry` and `old_bytes` are what such loads still see (NONE: nothing is delayed).
   Read-modify-writes act on the newest value. This covers store buffers (TSO) and stores that overtake each other (PSO, ARM),
   except where a release forbids it.

   MUTANT 1 no_reader_fence: R2 left out
   MUTANT 2 no_retirer_fence: T2 left out
   MUTANT 3 no_recheck: the reader does not look at the word again (R3)
   MUTANT 4 scan_before_word: lease files are read before the word is set
   MUTANT 5 free_without_relist: the second transaction does not look whether the block is still listed
   MUTANT 6 listing_kept: a scan takes the set of lease files from an earlier one
   MUTANT 7 no_generation: a word says live or not, and not of which incarnation
   MUTANT 8 release_before_reading_ends: 0 is stored into the entry before the last byte is read
   MUTANT 9 bytes_unordered: neither set_live nor the commit releases the bytes
   MUTANT 10 lease_after_gate: the ninth round leases after the write transaction is over
   MUTANT 11 alive_taken_for_dead: a claim counts for nothing although its process lives
   MUTANT 12 plain_set_free: a late set_free stores instead of comparing, and hits the next incarnation */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define NONE 15
#define WORD(g, state) ((g) * 4 + (state))
#define FREE 0
#define LIVE 1
#define RETIRED 2

/* the index: changed by write transactions, atomic and one at a time */
byte cell = 1;             /* generation that the row's cell names; 0: cleared */
byte listed;               /* generation listed as retired, 0: none */
byte owner = 1;            /* whose the extent is: a generation, 0: free */
bit gate;                  /* held over several steps by a ninth round only */

/* shared memory */
byte word = WORD(1, LIVE), old_word = NONE;
byte bytes = 1, old_bytes = NONE;
byte entry[2], old_entry[2] = NONE;
bit exists[2];
bit killed[9];             /* by process: it takes no further step, and its lock is free */
#define dead killed[6]     /* reader 1 */

byte reading[2];           /* ghost: what a reader relies on */
byte freed;                /* ghost */

#define seen(now, old) (old == NONE -> now : old)
#define word_seen seen(word, old_word)
#define entry_seen(f) seen(entry[f], old_entry[f])
#define delay(now, old) if :: old == NONE -> old = now :: else fi

inline store_entry(f, value) { d_step { delay(entry[f], old_entry[f]); entry[f] = value } }

inline check_bytes(g) { assert(seen(bytes, old_bytes) == g) }

/* lease_blocks (lease.cpp) and what follows it */
proctype Reader(byte i) provided (!killed[_pid]) {
  byte g;
  exists[i] = 1;                                     /* LeaseFile::File::make: locked, formatted, renamed */
again:
  if
  :: g = cell;                                       /* Index::resolve: a read transaction */
     if :: g == 0 -> goto leave :: else fi;
     store_entry(i, g);                              /* R1 */
     if :: M(1) :: else -> old_entry[i] = NONE fi;   /* R2 */
     if
     :: d_step { M(3) || (M(7) && word_seen % 4 == LIVE) || word_seen == WORD(g, LIVE) -> reading[i] = g }  /* R3 */
     :: else -> store_entry(i, 0); goto again        /* a later snapshot does not name it */
     fi
  :: i == 0 ->                                       /* the ninth round: resolved inside the write transaction */
     atomic { !gate -> gate = 1; g = cell };
     if :: M(10) -> gate = 0 :: else fi;
     if :: g == 0 -> gate = 0; goto leave :: else fi;
     store_entry(i, g);                              /* lease_own_block */
     old_entry[i] = NONE;
     d_step { gate = 0; reading[i] = g }
  fi;
  check_bytes(g);
  if :: M(8) -> store_entry(i, 0) :: else fi;
  d_step { check_bytes(g); reading[i] = 0 };
  store_entry(i, 0);                                 /* LeaseFile::release: after all reading */
leave:
  g = 0
}

/* unleased_of_retired and index.free_retired of generation 1 */
inline retire() {
  if :: M(4) -> leased = (exists[0] && entry_seen(0) == 1) || (exists[1] && entry_seen(1) == 1) :: else fi;
  if                                                 /* T1: BlockTable::set_retired, a compare-and-swap */
  :: d_step { word == WORD(1, LIVE) -> delay(word, old_word); word = WORD(1, RETIRED) }
  :: d_step { word == WORD(1, RETIRED) }             /* somebody else's: seen, hence fenced by us, too */
  :: else -> goto done                               /* another incarnation: freed by somebody else */
  fi;
  if :: M(2) :: else -> old_word = NONE fi;          /* T2 */
  if                                                 /* T3: LeaseDirectory::unleased: listing, then one file after the other */
  :: !M(4) ->
     if :: M(6) :: else -> d_step { there[0] = exists[0]; there[1] = exists[1] } fi;
     if :: there[0] && entry_seen(0) == 1 -> leased = !M(11) :: else fi;
     if
     :: there[1] && entry_seen(1) == 1 ->
        if :: !dead -> leased = !M(11) :: dead fi    /* is_dead: asked last, and only where it matters */
     :: else
     fi
  :: else
  fi;
  if
  :: !leased ->
     atomic {                                        /* the second transaction */
       !gate ->
       if
       :: listed == 1 || M(5) ->
          assert(owner == 1);                        /* every byte one owner */
          assert(reading[0] != 1 && reading[1] != 1);
          listed = 0; owner = 0
       :: else
       fi
     };
     d_step { if :: M(12) || word == WORD(1, RETIRED) -> word = WORD(1, FREE) :: else fi }  /* BlockTable::set_free */
  :: else
  fi;
done:
  skip;
  d_step { leased = 0; there[0] = 0; there[1] = 0 }
}

proctype Clearer() {
  bit leased; bit there[2];
  if :: M(6) -> d_step { there[0] = exists[0]; there[1] = exists[1] } :: else fi;   /* an earlier scan */
  atomic { !gate -> cell = 0; listed = 1 };          /* index.clear_rows: the last cell of the block */
  retire()
}

/* Of another process; it may have been looking at the list for ever so long. */
proctype Reclaimer() {
  bit leased; bit there[2];
  listed == 1;                                       /* index.retired */
  retire()
}

proctype Producer() {
  atomic { !gate && owner == 0 -> owner = 2 };       /* index.reserve: waits for room */
  d_step { delay(bytes, old_bytes); bytes = 2 };     /* PendingBlock::copy_in */
  d_step { delay(word, old_word); word = WORD(2, LIVE) };  /* BlockTable::set_live: release */
  atomic {                                           /* index.publish: release fence, commit */
    !gate ->
    if :: M(9) -> old_word = NONE :: else -> old_bytes = NONE; old_word = NONE fi;
    cell = 2
  };
}

/* A delayed store becomes visible; a release store (set_live) not before what precedes it. */
proctype Memory() {
end:
  do
  :: old_entry[0] != NONE -> old_entry[0] = NONE
  :: old_entry[1] != NONE -> old_entry[1] = NONE
  :: old_word != NONE && (old_bytes == NONE || M(9)) -> old_word = NONE
  :: old_bytes != NONE -> old_bytes = NONE
  od
}

proctype Killer() { if :: d_step { reading[1] = 0; old_entry[1] = NONE; dead = 1 } :: skip fi }

/* When all is over: nothing is lost, what lives is live. */
proctype Judge() {
  timeout ->
  assert(cell == 2 -> word == WORD(2, LIVE) : 1);
  assert(owner == 2 || listed == 1 || owner == 0)
}

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    exists[0] = 1;
    run Memory(); run Clearer(); run Producer(); run Reader(0); run Judge();
    if                                               /* together they are too many states for a test that runs often */
    :: run Reclaimer()
    :: run Reader(1); run Killer()
    fi
  }
}
