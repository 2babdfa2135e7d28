import { describePolicies } from './policies.js';

describePolicies('tproxy');
