/* Cards and problems that the tests of attention_decode_sm90's planner share. Pure; any thread. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_DECODE_DECODE_PROBLEM_H
#define KJIT_TESTS_UNIT_ATTENTION_DECODE_DECODE_PROBLEM_H

#include "attention/decode/decode_choose.h"
#include "unit/attention/attention_problem.h"

static const struct decode_card h200 = {132, 4000000}, h100 = {132, 2793333};

#endif
